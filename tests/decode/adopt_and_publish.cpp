// SPDX-License-Identifier: MIT
// The three halves of a cache through the real path: a finished row publishes, the next one adopts
// those very pages, and both give back what they held.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "catch.hpp"
#include "kvstem/reference/batcher.hpp"
#include "kvstem/reference/presets.hpp"
#include "support/batch_engine.hpp"
#include "support/reference.hpp"

using namespace kvstem;
using namespace kvstem::reference;
using support::BatchEngine;
using support::ColdAnswer;
using support::joined;
using support::seeded_model;
using support::some_tokens;

namespace {

constexpr std::size_t page_tokens = 4;

std::vector<PageId> table_of(const BatchEngine& engine, JobId id) {
    const auto table = engine.batcher.lease(id)->block_table();
    return {table.begin(), table.end()};
}

/// Steps until the job has sampled its first token: its prefill is over then.
void step_through_prefill(BatchEngine& engine, JobId id) {
    while (engine.batcher.result(id).tokens.empty()) REQUIRE(engine.step());
    REQUIRE(engine.batcher.status(id) == JobStatus::running);
}

}  // namespace

TEST_CASE(
    "a finished row leaves its whole prefix in the tree, and the last token without a row not",
    "[P1]") {
    for (const Sharing sharing : {Sharing::finished_rows, Sharing::prefill_chunks}) {
        for (const std::size_t prompt_tokens : {1u, 3u, 20u, 21u, 22u, 23u}) {
            INFO(prompt_tokens << " tokens of prompt");
            BatchEngine engine(seeded_model(presets::llama_tiny()), 32, page_tokens,
                               {.prefill_chunk_tokens = 5, .sharing = sharing});
            const Job job{.prompt = some_tokens(prompt_tokens, 64, 1), .max_new_tokens = 8};
            const JobId id = engine.batcher.submit(job);
            engine.run();
            const JobResult& result = engine.batcher.result(id);
            REQUIRE(result.status == JobStatus::length);
            REQUIRE(result.tokens.size() == 8);
            CHECK(result.computed_tokens == prompt_tokens + 7);

            const std::size_t whole = (prompt_tokens + 7) / page_tokens * page_tokens;
            const auto all = joined(joined(job.prompt, result.tokens), {1, 2, 3, 4, 5});
            CHECK(engine.cache.peek(all).cached_tokens == whole);
            CHECK(engine.cache.cached_pages() == whole / page_tokens);
            engine.require_nothing_leaked();
        }
    }
}

TEST_CASE(
    "the next request adopts those very pages: two owners while it runs, one when it is dropped",
    "[M3][G1]") {
    BatchEngine engine(seeded_model(presets::qwen3_tiny()), 32, page_tokens,
                       {.prefill_chunk_tokens = 6});
    const auto system = some_tokens(21, 64, 1);
    const JobId first = engine.batcher.submit(
        {.prompt = joined(system, some_tokens(4, 64, 2)), .max_new_tokens = 6});
    step_through_prefill(engine, first);
    const std::vector<PageId> computed = table_of(engine, first);
    for (const PageId page : computed) CHECK(engine.cache.refs(page) == 1);
    engine.run();

    const auto prompt = joined(system, some_tokens(9, 64, 3));
    for (const bool is_aborted : {true, false}) {
        const JobId next = engine.batcher.submit({.prompt = prompt, .max_new_tokens = 3});
        step_through_prefill(engine, next);
        REQUIRE(engine.batcher.result(next).adopted_tokens == 20);
        REQUIRE(engine.batcher.lease(next)->adopted() == 20);
        const std::vector<PageId> table = table_of(engine, next);
        while (engine.batcher.lease(next) != nullptr) {
            for (std::size_t i = 0; i < 5; ++i) {
                REQUIRE(table[i] == computed[i]);
                REQUIRE(engine.cache.refs(table[i]) == 2);
            }
            for (std::size_t i = 5; i < table.size(); ++i) {
                REQUIRE(engine.cache.refs(table[i]) == 1);
            }
            is_aborted ? static_cast<void>(engine.abort(next)) : static_cast<void>(engine.step());
        }
        for (std::size_t i = 0; i < 5; ++i) CHECK(engine.cache.refs(table[i]) == 1);
        engine.require_nothing_leaked();
    }
}

TEST_CASE(
    "a prompt of whole pages adopts a page less, starts there and ends with its length in rows",
    "[M4]") {
    const auto model = seeded_model(presets::mixed_window_tiny());
    const std::size_t length = 24;
    const Job job{.prompt = some_tokens(length, 64, 5), .max_new_tokens = 4};
    const ColdAnswer cold = support::cold_answer(model, job);
    for (const std::size_t chunk : {std::size_t{1}, std::size_t{3}, length + 1}) {
        INFO("chunks of " << chunk);
        BatchEngine engine(model, 32, page_tokens, {.prefill_chunk_tokens = chunk});
        engine.answer(job);
        REQUIRE(engine.cache.peek(job.prompt).cached_tokens == length);

        const JobId id = engine.batcher.submit(job);
        std::size_t rows = length - page_tokens;
        do {
            REQUIRE(engine.step());
            rows = std::min(length, rows + chunk);
            REQUIRE(engine.batcher.lease(id)->written() == rows);
            REQUIRE(engine.batcher.result(id).computed_tokens == rows - (length - page_tokens));
            REQUIRE(engine.rows_of(id) == cold.kv.prefix(rows));
        } while (rows < length);
        CHECK(engine.batcher.lease(id)->adopted() == length - page_tokens);
        CHECK(engine.batcher.result(id).tokens.size() == 1);
        const ContiguousKv kv = engine.rows_of(id);
        CHECK(kv.length() == length);
        CHECK(kv.shape().n_layers == model->config().n_layers);
        engine.run();
        support::require_same_answer(engine.batcher.result(id), cold);
    }
}

TEST_CASE("the adopted count of a lease and the rows its KV was seeded with agree in every layer",
          "[X1]") {
    const auto model = seeded_model(presets::qwen3_tiny());
    const auto system = some_tokens(18, 64, 1);
    for (const PartialPages partial : {PartialPages::compute, PartialPages::copy}) {
        BatchEngine engine(model, 64, page_tokens,
                           {.prefill_chunk_tokens = 1, .partial_pages = partial});
        engine.answer({.prompt = joined(system, some_tokens(8, 64, 2)), .max_new_tokens = 2});
        for (std::size_t own = 1; own < 10; ++own) {
            INFO(own << " tokens of its own");
            // Of a 64-token vocabulary these differ from the first job's at once.
            const Job job{.prompt = joined(system, some_tokens(own, 64, 90 + own)),
                          .max_new_tokens = 1};
            const ColdAnswer cold = support::cold_answer(model, job);
            const JobId id = engine.batcher.submit({.prompt = job.prompt, .max_new_tokens = 2});
            const std::size_t peeked = engine.cache.peek(job.prompt).adoptable_tokens;
            REQUIRE(engine.step());
            const auto* lease = engine.batcher.lease(id);
            REQUIRE(lease != nullptr);
            const std::size_t adopted = lease->adopted();
            CHECK(adopted >= peeked);
            CHECK(adopted >= (partial == PartialPages::copy
                                  ? std::min(system.size(), system.size() + own - 1)
                                  : 16));
            if (partial == PartialPages::compute) CHECK(adopted == peeked);
            CHECK(lease->written() == adopted + 1);  // one chunk of one token was computed
            const ContiguousKv seeded =
                support::copy_rows(PagedKvView(engine.store, lease->block_table(), adopted));
            CHECK(seeded == cold.kv.prefix(adopted));
            engine.abort(id);
        }
        engine.require_nothing_leaked();
    }
}

TEST_CASE("two rows that compute the same prompt side by side leave it in the tree once", "[P2]") {
    const auto model = seeded_model(presets::llama_tiny());
    const Job job{.prompt = some_tokens(14, 64, 1), .max_new_tokens = 7};
    const ColdAnswer cold = support::cold_answer(model, job);
    BatchEngine engine(model, 32, page_tokens, {.prefill_chunk_tokens = 8});
    const JobId a = engine.batcher.submit(job);
    const JobId b = engine.batcher.submit(job);
    engine.run();
    for (const JobId id : {a, b}) {
        CHECK(engine.batcher.result(id).adopted_tokens == 0);
        support::require_same_answer(engine.batcher.result(id), cold);
    }
    CHECK(engine.cache.cached_pages() == 5);
    CHECK(engine.cache.stats().duplicate_pages == 5);
    engine.require_nothing_leaked();
}

TEST_CASE("with chunks published, jobs that begin alike wait and compute the shared part once",
          "[P5]") {
    const auto model = seeded_model(presets::llama_tiny());
    const auto system = some_tokens(20, 64, 1);
    const std::size_t users = 8;
    for (const std::size_t chunk : {3u, 8u, 64u}) {
        BatchEngine engine(model, 128, page_tokens,
                           {.prefill_chunk_tokens = chunk, .sharing = Sharing::prefill_chunks});
        std::vector<JobId> ids;
        for (std::size_t user = 0; user < users; ++user) {
            ids.push_back(engine.batcher.submit(
                {.prompt = joined(system, some_tokens(3, 64, 10 + user)), .max_new_tokens = 5}));
        }
        std::size_t together = 0;
        while (engine.step()) together = std::max(together, engine.batcher.running());
        CHECK(together > 1);
        CHECK(engine.batcher.stats().tokens_computed == 20 + users * (3 + 4));
        for (std::size_t user = 0; user < users; ++user) {
            const JobResult& result = engine.batcher.result(ids[user]);
            CHECK(result.adopted_tokens == (user == 0 ? 0 : 20));
            CHECK(result.status == JobStatus::length);
        }
        engine.require_nothing_leaked();
    }
}

TEST_CASE("a running row's published chunks are covered by its pin and can be adopted", "[P5]") {
    const auto model = seeded_model(presets::llama_tiny());
    BatchEngine engine(model, 16, page_tokens,
                       {.prefill_chunk_tokens = 6, .sharing = Sharing::prefill_chunks});
    const Job job{.prompt = some_tokens(20, 64, 1), .max_new_tokens = 3};
    const JobId id = engine.batcher.submit(job);
    for (std::size_t rows = 6; rows < 20; rows += 6) {
        REQUIRE(engine.step());
        const std::size_t whole = rows / page_tokens;
        CHECK(engine.cache.peek(job.prompt).cached_tokens == whole * page_tokens);
        CHECK(engine.cache.pinned_pages() == whole);
        CHECK(engine.cache.evict(16) == 0);
        support::require_sound(engine.cache);
    }
    engine.run();
    support::require_same_answer(engine.batcher.result(id), support::cold_answer(model, job));
}

TEST_CASE("after a clear in mid-run the answer is the same, and the tree stays empty", "[L5]") {
    const auto model = seeded_model(presets::llama_tiny());
    for (const Sharing sharing : {Sharing::finished_rows, Sharing::prefill_chunks}) {
        const Job job{.prompt = some_tokens(20, 64, 1), .max_new_tokens = 6};
        const ColdAnswer cold = support::cold_answer(model, job);
        for (std::size_t steps = 1; steps < 9; ++steps) {
            BatchEngine engine(model, 16, page_tokens,
                               {.prefill_chunk_tokens = 6, .sharing = sharing});
            engine.answer({.prompt = some_tokens(20, 64, 1), .max_new_tokens = 1});
            const JobId id = engine.batcher.submit(job);
            for (std::size_t i = 0; i < steps && engine.step();) ++i;
            engine.cache.clear();
            support::require_sound(engine.cache);
            engine.run();
            support::require_same_answer(engine.batcher.result(id), cold);
            CHECK(engine.cache.cached_pages() == 0);
            engine.require_nothing_leaked();
        }
    }
}

TEST_CASE("jobs of different namespaces adopt nothing from each other", "[M7]") {
    const auto model = seeded_model(presets::llama_tiny());
    for (const Sharing sharing : {Sharing::finished_rows, Sharing::prefill_chunks}) {
        BatchEngine engine(model, 64, page_tokens, {.sharing = sharing});
        const auto prompt = some_tokens(17, 64, 1);
        const auto adopted = [&](Job job) {
            job.prompt = prompt;
            job.max_new_tokens = 2;
            return engine.answer(job).adopted_tokens;
        };
        CHECK(adopted({}) == 0);
        CHECK(adopted({.salt = "a"}) == 0);
        CHECK(adopted({.adapter = "a"}) == 0);
        CHECK(adopted({.version = "a"}) == 0);
        CHECK(adopted({.salt = ""}) == 0);
        CHECK(adopted({.salt = "a"}) == 16);
        CHECK(adopted({}) == 16);
        engine.require_nothing_leaked();
    }
}

TEST_CASE("a job waits for nobody's prefix but one of its own namespace", "[M7][P5]") {
    BatchEngine engine(seeded_model(presets::llama_tiny()), 64, page_tokens,
                       {.prefill_chunk_tokens = 4, .sharing = Sharing::prefill_chunks});
    const auto prompt = some_tokens(17, 64, 1);
    engine.batcher.submit({.prompt = prompt});
    engine.batcher.submit({.prompt = prompt, .salt = "a"});
    const JobId same = engine.batcher.submit({.prompt = prompt});
    REQUIRE(engine.step());
    CHECK(engine.batcher.running() == 2);
    CHECK(engine.batcher.status(same) == JobStatus::queued);
    engine.run();
    CHECK(engine.batcher.result(same).adopted_tokens == 16);
    engine.require_nothing_leaked();
}

TEST_CASE("without sharing nothing is adopted from a full cache and nothing published to it") {
    const auto model = seeded_model(presets::llama_tiny());
    BatchEngine engine(model, 32, page_tokens);
    const Job job{.prompt = some_tokens(17, 64, 1), .max_new_tokens = 4};
    const ColdAnswer cold = support::cold_answer(model, job);
    engine.answer(job);
    const RadixCacheStats before = engine.cache.stats();
    REQUIRE(before.cached_pages == 5);

    Batcher<> baseline(engine.cache, engine.store, engine.decoder, {.sharing = Sharing::off});
    const JobId a = baseline.submit(job);
    const JobId b = baseline.submit({.prompt = some_tokens(30, 64, 2), .max_new_tokens = 4});
    while (baseline.step()) support::require_sound(engine.cache);
    support::require_same_answer(baseline.result(a), cold);
    CHECK(baseline.result(a).adopted_tokens == 0);
    CHECK(baseline.result(a).computed_tokens == 20);
    CHECK(baseline.status(b) == JobStatus::length);
    CHECK(engine.cache.stats().published_pages == before.published_pages);
    CHECK(engine.cache.stats().queried_tokens == before.queried_tokens);
    CHECK(engine.cache.cached_pages() == 5);
    engine.require_nothing_leaked();
}
