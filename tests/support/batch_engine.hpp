// SPDX-License-Identifier: MIT
// What tests of batched decoding share: an engine in one piece that is audited after every step,
// and the answers of a decoder that has never heard of pages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "kvstem/radix_cache.hpp"
#include "kvstem/reference/batcher.hpp"
#include "kvstem/reference/decoder.hpp"
#include "kvstem/reference/job.hpp"
#include "kvstem/reference/kv.hpp"
#include "kvstem/reference/model.hpp"
#include "kvstem/reference/paged_kv.hpp"
#include "kvstem/reference/sampler.hpp"
#include "reference.hpp"

namespace support {

using SharedModel = std::shared_ptr<const kvstem::reference::Model>;

inline SharedModel seeded_model(const kvstem::reference::ModelConfig& config,
                                std::uint64_t seed = 1) {
    return std::make_shared<const kvstem::reference::Model>(
        kvstem::reference::Model::from_seed(config, seed));
}

inline std::vector<kvstem::Token> joined(std::vector<kvstem::Token> a,
                                         const std::vector<kvstem::Token>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

/// What a job has to answer: alone, on a contiguous KV, the prompt at once and then token by token.
struct ColdAnswer {
    kvstem::reference::ContiguousKv kv;   // of the prompt and the answer but for its last token
    std::vector<kvstem::Token> tokens{};  // sampled
    std::vector<float> last_logits{};
    kvstem::reference::LogitsHash logits{};
};

inline ColdAnswer cold_answer(const SharedModel& model, const kvstem::reference::Job& job) {
    kvstem::reference::Decoder decoder(model);
    kvstem::reference::Sampler sampler(job.sampling);
    ColdAnswer answer{kvstem::reference::ContiguousKv(model->config().kv_shape())};
    auto logits = decoder.forward_batch(job.prompt, 0, answer.kv);
    while (true) {
        answer.last_logits.assign(logits.last().begin(), logits.last().end());
        answer.logits.add(logits.last());
        if (job.max_new_tokens == 0) return answer;
        const kvstem::Token token = sampler.sample(logits.last());
        answer.tokens.push_back(token);
        const auto& stops = job.stop_tokens;
        if (std::find(stops.begin(), stops.end(), token) != stops.end()) return answer;
        if (answer.tokens.size() == job.max_new_tokens) return answer;
        if (answer.kv.length() == model->config().max_context) return answer;
        logits = decoder.forward_batch({&token, 1}, answer.kv.length(), answer.kv);
    }
}

/// Fails the test unless every invariant of the cache holds.
inline void require_sound(const kvstem::RadixCache<>& cache) {
    const kvstem::AuditReport report = cache.audit();
    if (report.ok()) return;
    FAIL("audit: " << report.findings.front().what << " (" << report.findings.front().subject
                   << "), and " << report.findings.size() - 1 << " more");
}

/// A model, a cache, a store and a batcher over them.
struct BatchEngine {
    BatchEngine(SharedModel shared_model, std::size_t pages, std::size_t page_tokens,
                kvstem::reference::BatcherOptions options = {})
        : model(std::move(shared_model)),
          decoder(model),
          store(model->config().kv_shape(), pages, page_tokens),
          cache({.page_tokens = page_tokens}, kvstem::PagePool(pages)),
          batcher(cache, store, decoder, options) {}

    bool step() {
        const bool computed = batcher.step();
        require_sound(cache);
        return computed;
    }
    void run() {
        while (step()) {
        }
    }
    bool abort(kvstem::reference::JobId id) {
        const bool was_live = batcher.abort(id);
        require_sound(cache);
        return was_live;
    }
    const kvstem::reference::JobResult& answer(const kvstem::reference::Job& job) {
        const auto id = batcher.submit(job);
        run();
        return batcher.result(id);
    }

    /// The rows that a running job's KV holds now, in every layer.
    [[nodiscard]] kvstem::reference::ContiguousKv rows_of(kvstem::reference::JobId id) {
        const auto* lease = batcher.lease(id);
        REQUIRE(lease != nullptr);
        return copy_rows(
            kvstem::reference::PagedKvView(store, lease->block_table(), lease->written()));
    }

    /// The bits of a page group, to see whether anyone wrote into it.
    [[nodiscard]] kvstem::reference::ContiguousKv rows_of_page(kvstem::PageId page) {
        const std::vector<kvstem::PageId> table{page};
        return copy_rows(kvstem::reference::PagedKvView(store, table, store.page_tokens()));
    }

    /// The pages with an owner; without leases these are the tree's.
    [[nodiscard]] std::vector<kvstem::PageId> held_pages() const {
        std::vector<kvstem::PageId> pages;
        for (std::uint32_t i = 0; i < cache.pages().capacity_pages(); ++i) {
            if (cache.refs(kvstem::PageId{i}) != 0) pages.push_back(kvstem::PageId{i});
        }
        return pages;
    }

    /// After the last lease: nothing is held but by the tree, and by it once.
    void require_nothing_leaked() const {
        CHECK(cache.stats().leases == 0);
        CHECK(cache.pinned_pages() == 0);
        CHECK(cache.free_pages() + cache.cached_pages() == cache.pages().capacity_pages());
        for (const kvstem::PageId page : held_pages()) CHECK(cache.refs(page) == 1);
    }

    SharedModel model;
    kvstem::reference::Decoder decoder;
    kvstem::reference::PagedKvStore store;
    kvstem::RadixCache<> cache;
    kvstem::reference::Batcher<> batcher;
};

/// Tokens, every row of logits that a token was drawn from, and how it ended, bit for bit.
inline void require_same_answer(const kvstem::reference::JobResult& result,
                                const ColdAnswer& cold) {
    REQUIRE(result.tokens == cold.tokens);
    REQUIRE(result.logits == cold.logits);
    REQUIRE(same_bits(result.last_logits, cold.last_logits));
}

}  // namespace support
