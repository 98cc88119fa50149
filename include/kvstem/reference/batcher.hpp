// SPDX-License-Identifier: MIT
// A continuous batcher: jobs come and go between steps, and all running ones share each step.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "../config.hpp"
#include "../errors.hpp"
#include "../lease.hpp"
#include "../radix_cache.hpp"
#include "../token.hpp"
#include "decoder.hpp"
#include "job.hpp"
#include "logits.hpp"
#include "paged_kv.hpp"
#include "sampler.hpp"

namespace kvstem::inline KVSTEM_ABI::reference {

/// What jobs let each other have of the rows they computed.
enum class Sharing {
    off,            ///< nothing is adopted and nothing published: the uncached baseline
    finished_rows,  ///< a job publishes as it finishes, and as it is preempted
    prefill_chunks  ///< also after each chunk of its prefill (P5), and a job whose prefix a running
                    ///< one is about to compute waits for it instead of computing it again
};

/// What is done about a page of which only the first rows agree (M8).
enum class PartialPages { compute, copy };

/// How the steps of a batcher are cut, and what its jobs share.
struct BatcherOptions {
    std::size_t prefill_chunk_tokens = 64;  ///< of each prompt per step; at least 1
    std::size_t max_running = 64;           ///< jobs at a time; at least 1
    Sharing sharing = Sharing::finished_rows;
    PartialPages partial_pages = PartialPages::compute;
};

/// Plain counters of a batcher, and the most it ever held.
struct BatcherStats {
    std::uint64_t steps = 0;            ///< in which anything was computed
    std::uint64_t tokens_computed = 0;  ///< over all jobs
    std::uint64_t preemptions = 0;
    std::size_t peak_running = 0;  ///< jobs
    std::size_t peak_pages = 0;    ///< not free during a step: held by jobs, or kept in the tree
};

namespace detail {

/// Where the decoder is to compute, how many positions the lease says have rows, and how many rows
/// the KV holds are one number. A prefill that started elsewhere than at the adopted rows would
/// leave a hole or write into somebody else's page, and nothing later would notice.
/// Throws: InvalidArgument naming the three.
inline void check_cursor(JobId job, std::size_t cursor, std::size_t written, std::size_t rows) {
    if (cursor == written && cursor == rows) return;
    kvstem::detail::fail<InvalidArgument>(
        "batcher: job %u is to compute position %zu, but its lease has written %zu and its KV "
        "holds "
        "%zu",
        static_cast<unsigned>(job), cursor, written, rows);
}

/// Whether a token can be drawn at all: at least one finite logit, and none that is NaN or +∞.
[[nodiscard]] inline bool can_be_sampled(std::span<const float> logits) noexcept {
    bool finite = false;
    for (const float logit : logits) {
        if (std::isnan(logit) || logit == std::numeric_limits<float>::infinity()) return false;
        finite = finite || std::isfinite(logit);
    }
    return finite;
}

}  // namespace detail

/// Runs many jobs at once over one RadixCache: admits them as pages allow, computes their prompts
/// in chunks from the adopted position on, decodes all of them in one step, publishes what they
/// computed, and gives everything back.
///
/// Choose it when: requests of different ages and lengths are to share a decoder and a cache, or to
/// see how the three halves of a cache (adopt, publish, give back) meet an engine's loop. It is a
/// readable loop and not a scheduler: one thread, first come first served, no priorities.
///
/// The life of a job (statuses in job.hpp):
///
///     submit ──► queued ──acquire──► running: prefill, chunk by chunk ──► decode, token by token
///       │          ▲                    │                                    │
///       ▼          └──── preempted ─────┴──────────────◄─────────────────────┤
///     never_fits                                                   publish, lease dies
///
/// Invariants: for every running job the decoder's cursor, `lease.written()` and the rows of its KV
/// are one number, which begins as `lease.adopted()`; checked before each computation. The last
/// sampled token has no row, so it is never published. Jobs run in the order of submission: the
/// running ones are older than the queued ones, and `running` is sorted by age.
///
/// Admission: the job at the head of the queue acquires pages for its tokens so far, not for its
/// answer; a refusal for now leaves it there, and nobody overtakes it.
///
/// Preemption: a row that needs a page when nothing is free and nothing evictable takes it from the
/// youngest running job (which may be itself). That one publishes its whole pages, which makes them
/// evictable, gives up its lease and goes back to the head of the queue. When admitted again, it
/// computes what is gone by then and continues with the same bits (X1) and the random state it had.
/// This cannot dead-lock or go in circles: the oldest job is never preempted for another, each job
/// fits the pool alone, so the oldest advances in every step and ends. (If leases that are not the
/// batcher's hold the pages, `step` returns false until they let go.)
///
/// Complexity: a step costs its tokens in the decoder, beside which the bookkeeping, linear in
/// running jobs and the tokens of those waiting for a prefix, is nothing.
/// Exceptions: InvalidArgument as stated at each call. What the decoder, the sampler or the
/// allocator throw passes through `step`; no page is lost then, but the rows of that step may be
/// left half-way, and the cursor check refuses to go on with such a one: abort it, or destroy the
/// batcher.
/// Threads: none of its own. Lifetime: cache, store and decoder must outlive it; when it dies, its
/// leases give everything back and nothing more is published.
///
///     reference::Batcher batcher(cache, store, decoder, {.prefill_chunk_tokens = 32});
///     const auto id = batcher.submit({.prompt = tokens, .max_new_tokens = 64});
///     batcher.run();
///     use(batcher.result(id).tokens);
template <class Cache = RadixCache<>>
class Batcher {
  public:
    using Lease = typename Cache::Lease;
    using Tokens = std::span<const Token>;
    static_assert(std::same_as<typename Cache::TokenType, Token>);

    /// Throws: InvalidArgument for an option of 0, or if the store's pages are not the cache's or
    /// its rows not the model's.
    Batcher(Cache& cache, PagedKvStore& store, Decoder& decoder, BatcherOptions options = {})
        : cache_(cache), store_(store), decoder_(decoder), options_(options) {
        check_parts();
    }
    Batcher(const Batcher&) = delete;
    Batcher& operator=(const Batcher&) = delete;
    ~Batcher() = default;

    /// Puts a job at the end of the queue. One that could not run even alone is finished at once,
    /// as never_fits.
    /// Throws: InvalidArgument for an empty prompt, a token outside the vocabulary, or sampling
    /// parameters out of range; nothing is queued then.
    JobId submit(Job job);

    /// Ends a job without publishing what it computed since it last published (P6). Returns false
    /// if it was over already.
    bool abort(JobId id);

    /// Gives running jobs the pages they need next, admits queued ones, and computes: for each job
    /// in prefill its next chunk, for all others together one token.
    /// Returns: whether anything was computed. If not, there is nothing to do, or leases that are
    /// not the batcher's hold the pages that the job at the head of the queue needs.
    bool step();

    /// Steps until nothing more can be computed.
    void run() {
        while (step()) {
        }
    }

    /// Throws: InvalidArgument for an id that was not handed out here. The reference stays valid
    /// until the next `submit`.
    [[nodiscard]] const JobResult& result(JobId id) const { return record_of(id).result; }
    [[nodiscard]] JobStatus status(JobId id) const { return result(id).status; }

    /// The lease of a running job, nullptr for any other; valid until the next non-const call.
    [[nodiscard]] const Lease* lease(JobId id) const {
        for (const Row& row : running_) {
            if (row.id == id) return &row.lease;
        }
        return nullptr;
    }

    [[nodiscard]] std::size_t queued() const noexcept { return queue_.size(); }
    [[nodiscard]] std::size_t running() const noexcept { return running_.size(); }
    [[nodiscard]] const BatcherStats& stats() const noexcept { return stats_; }

  private:
    /// A job from submission on.
    struct Record {
        Job job;
        Sampler sampler;
        std::vector<Token> sequence;  // the prompt and what was sampled since
        JobResult result{};
    };

    /// A running job: what it holds, and how far it is.
    struct Row {
        JobId id{};
        Lease lease;
        PagedKvView kv;          // over the lease's block table; its length grows with the decoder
        std::size_t cursor = 0;  // the position that is computed next
        std::size_t prefill_end = 0;  // below it positions are prefill, from it on decoding
        JobStatus status = JobStatus::running;

        [[nodiscard]] bool in_prefill() const noexcept { return cursor < prefill_end; }
    };

    void check_parts() const;
    [[nodiscard]] bool could_run_alone(const Job& job) const noexcept;
    [[nodiscard]] const Record& record_of(JobId id) const;
    [[nodiscard]] Record& record_of(JobId id) {
        return const_cast<Record&>(std::as_const(*this).record_of(id));
    }
    [[nodiscard]] std::size_t pages_for(std::size_t positions) const noexcept {
        return positions / cache_.page_tokens() + (positions % cache_.page_tokens() != 0 ? 1 : 0);
    }

    void grow_rows();
    void preempt_youngest();
    void admit();
    [[nodiscard]] bool awaits_running_prefix(const Record& record) const;
    [[nodiscard]] Acquired<Lease> acquire(const Record& record);
    [[nodiscard]] Acquired<Lease> acquire_unshared(std::size_t positions);
    void start(JobId id, Lease lease);

    void compute_prefill(std::span<const std::size_t> rows);
    void compute_decode(std::span<const std::size_t> rows);
    void advance(Row& row, Tokens computed);
    void sample(Row& row, std::span<const float> logits);
    void publish(Row& row);
    void finish_rows();

    Cache& cache_;
    PagedKvStore& store_;
    Decoder& decoder_;
    BatcherOptions options_;
    std::vector<Record> records_;  // by job id
    std::deque<JobId> queue_;      // oldest first, and all younger than the running ones
    std::vector<Row> running_;     // oldest first
    BatcherStats stats_;
};

template <class Cache>
void Batcher<Cache>::check_parts() const {
    using kvstem::detail::fail;
    if (options_.prefill_chunk_tokens == 0 || options_.max_running == 0) {
        fail<InvalidArgument>("batcher: chunks of %zu tokens, %zu jobs at a time",
                              options_.prefill_chunk_tokens, options_.max_running);
    }
    const std::size_t capacity = cache_.pages().capacity_pages();
    if (store_.page_tokens() != cache_.page_tokens() || store_.capacity_pages() < capacity) {
        fail<InvalidArgument>(
            "batcher: a store of %zu pages of %zu positions for a cache of %zu pages of %zu",
            store_.capacity_pages(), store_.page_tokens(), capacity, cache_.page_tokens());
    }
    const KvShape shape = decoder_.config().kv_shape();
    if (store_.shape() != shape) {
        fail<InvalidArgument>(
            "batcher: a store of %zu layers of %zu floats, the model has %zu of %zu",
            store_.shape().n_layers, store_.shape().row_size, shape.n_layers, shape.row_size);
    }
}

// ── Jobs come and go ──

template <class Cache>
JobId Batcher<Cache>::submit(Job job) {
    if (job.prompt.empty()) kvstem::detail::fail<InvalidArgument>("batcher: an empty prompt");
    for (const Token token : job.prompt) {
        // Found in a step, it would be everybody's problem.
        if (token < 0 || static_cast<std::size_t>(token) >= decoder_.config().vocab_size) {
            kvstem::detail::fail<InvalidArgument>(
                "batcher: token %d of a prompt is outside the vocabulary of %zu",
                static_cast<int>(token), decoder_.config().vocab_size);
        }
    }
    const auto id = static_cast<JobId>(records_.size());
    const bool fits = could_run_alone(job);
    Sampler sampler(job.sampling);
    std::vector<Token> sequence = job.prompt;
    if (records_.size() == records_.capacity()) records_.reserve(records_.size() * 2 + 8);
    if (fits) queue_.push_back(id);
    records_.push_back({std::move(job), std::move(sampler), std::move(sequence)});
    if (!fits) records_.back().result.status = JobStatus::never_fits;
    return id;
}

/// The last token a job may sample needs no row, because nothing is computed from it.
template <class Cache>
bool Batcher<Cache>::could_run_alone(const Job& job) const noexcept {
    const std::size_t context = decoder_.config().max_context;
    if (job.prompt.size() > context) return false;
    const std::size_t answer_rows = std::max<std::size_t>(job.max_new_tokens, 1) - 1;
    const std::size_t rows = job.prompt.size() + std::min(answer_rows, context - job.prompt.size());
    return pages_for(rows) <= cache_.pages().capacity_pages();
}

template <class Cache>
auto Batcher<Cache>::record_of(JobId id) const -> const Record& {
    const auto index = static_cast<std::size_t>(id);
    if (index >= records_.size()) {
        kvstem::detail::fail<InvalidArgument>("batcher: job %zu of %zu", index, records_.size());
    }
    return records_[index];
}

template <class Cache>
bool Batcher<Cache>::abort(JobId id) {
    JobStatus& status = record_of(id).result.status;
    if (is_final(status)) return false;
    status = JobStatus::aborted;
    std::erase(queue_, id);
    std::erase_if(running_, [id](const Row& row) { return row.id == id; });
    return true;
}

}  // namespace kvstem

#include "batcher_steps.hpp"
