// SPDX-License-Identifier: MIT
// Replays a trace through a real RadixCache and counts what it hits.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "../config.hpp"
#include "../page_pool.hpp"
#include "../policy/policy.hpp"
#include "../radix_cache.hpp"
#include "trace.hpp"

namespace kvstem::inline KVSTEM_ABI::replay {

/// Where the pages are that a request computes while it runs.
enum class WorkingPages {
    in_cache,  ///< they count against the capacity: a request's new blocks push others out
    separate   ///< they do not: when it ends, its own new blocks may be the first to go
};

/// The cache that a trace is run through.
struct ReplayOptions {
    std::size_t capacity_blocks = 0;
    WorkingPages working_pages = WorkingPages::in_cache;
};

/// What a replay, or a part of it, has counted.
struct ReplayCounts {
    std::uint64_t requests = 0;
    std::uint64_t blocks = 0;
    std::uint64_t hit_blocks = 0;
    std::uint64_t tokens = 0;
    std::uint64_t hit_tokens = 0;
    std::uint64_t evicted_blocks = 0;
    double seconds = 0;

    [[nodiscard]] double block_hit_rate() const noexcept { return share(hit_blocks, blocks); }
    [[nodiscard]] double token_hit_rate() const noexcept { return share(hit_tokens, tokens); }

    ReplayCounts& operator-=(const ReplayCounts& earlier) noexcept {
        requests -= earlier.requests;
        blocks -= earlier.blocks;
        hit_blocks -= earlier.hit_blocks;
        tokens -= earlier.tokens;
        hit_tokens -= earlier.hit_tokens;
        evicted_blocks -= earlier.evicted_blocks;
        seconds -= earlier.seconds;
        return *this;
    }

  private:
    static double share(std::uint64_t part, std::uint64_t all) noexcept {
        return all == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(all);
    }
};

/// A cache that starts empty hits less; the second half shows what it settles at.
struct ReplayResult {
    ReplayCounts whole;
    /// Of the requests from number ⌊n / 2⌋ on, with the cache that the first half left behind.
    ReplayCounts second_half;
};

/// Runs the requests one after the other through RadixCache with its own pool and leases. A block
/// is a page of one token, its number.
///
///   - Hits of a request: the leading blocks that are there before it.
///   - Its whole path is then published, the partial last block included, while a lease holds it.
///     Of a path that is longer than the capacity the first blocks that fit stay; with separate
///     working pages all of it is published and then evicted down to the capacity.
///   - RadixCache leaves at least one token to run (M4). So every prompt gets one more token, which
///     is never published, and the pool one more page for it.
template <eviction_policy Policy>
class Replay {
  public:
    Replay(const Trace& trace, ReplayOptions options, Policy policy = {})
        : trace_(trace),
          options_(options),
          most_blocks_(options.working_pages == WorkingPages::separate
                           ? trace.longest_request_blocks()
                           : std::min(options.capacity_blocks, trace.longest_request_blocks())),
          cache_({.page_tokens = 1}, PagePool(pool_pages()), std::move(policy)) {
        prompt_.reserve(most_blocks_ + 1);
    }

    /// Replays all of it. `progress()` is called after each request.
    template <class Progress>
    ReplayResult run(Progress&& progress) {
        const auto begin = std::chrono::steady_clock::now();
        const auto counts = [&] {
            ReplayCounts now = counts_;
            now.evicted_blocks = cache_.stats().evicted_pages;
            now.seconds =
                std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
            return now;
        };
        ReplayResult result;
        const std::size_t half = trace_.requests.size() / 2;
        for (std::size_t i = 0; i < trace_.requests.size(); ++i) {
            if (i == half) result.second_half = counts();
            step(trace_.requests[i]);
            progress();
        }
        result.whole = counts();
        const ReplayCounts first_half = std::exchange(result.second_half, result.whole);
        result.second_half -= first_half;
        return result;
    }
    ReplayResult run() {
        return run([] {});
    }

    [[nodiscard]] const RadixCache<PagePool, Policy>& cache() const noexcept { return cache_; }

  private:
    static constexpr Token never_published = std::numeric_limits<Token>::max();

    [[nodiscard]] std::size_t pool_pages() const noexcept {
        // More pages than there are distinct blocks are never held.
        const std::size_t kept = std::min(options_.capacity_blocks, trace_.distinct_blocks);
        const bool separate = options_.working_pages == WorkingPages::separate;
        return kept + (separate ? most_blocks_ : 0) + 1;
    }

    void step(const TraceRequest& request) {
        const std::span<const Token> path = trace_.path(request);
        const std::size_t hits = cache_.peek(path).cached_tokens;
        const std::span<const Token> kept = path.first(std::min(path.size(), most_blocks_));
        prompt_.assign(kept.begin(), kept.end());
        prompt_.push_back(never_published);
        {
            auto [admission, lease] = cache_.acquire(
                prompt_, {},
                {.tag = request.tag,
                 .partial_tail = kept.size() == path.size() && trace_.has_partial_tail(request)});
            KVSTEM_ASSERT(admission == Admission::granted);
            KVSTEM_ASSERT(lease.adopted() == std::min(hits, kept.size()));
            lease.wrote(kept.subspan(lease.adopted()));
            lease.publish();
        }
        if (cache_.cached_pages() > options_.capacity_blocks) {
            cache_.evict(cache_.cached_pages() - options_.capacity_blocks);
        }
        ++counts_.requests;
        counts_.blocks += path.size();
        counts_.hit_blocks += hits;
        counts_.tokens += request.tokens;
        counts_.hit_tokens += std::min(std::uint64_t{hits} * trace_.block_tokens, request.tokens);
    }

    const Trace& trace_;
    ReplayOptions options_;
    std::size_t most_blocks_;  // of a path that are published
    RadixCache<PagePool, Policy> cache_;
    std::vector<Token> prompt_;
    ReplayCounts counts_;
};

}  // namespace kvstem
