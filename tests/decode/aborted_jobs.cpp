// SPDX-License-Identifier: MIT
// Aborting a job at every point of its life gives everything back and leaves nothing unpublished.

#include <cstddef>
#include <optional>
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

/// What is published of a job that is aborted now.
std::size_t published_now(const BatchEngine& engine, JobId id, std::size_t before) {
    const auto* lease = engine.batcher.lease(id);
    return lease == nullptr ? before : lease->published();
}

}  // namespace

TEST_CASE("aborting while queued, in any prefill chunk or decode step leaks nothing", "[L1][P6]") {
    const auto model = seeded_model(presets::llama_tiny());
    const auto system = some_tokens(10, 64, 1);
    const Job victim{.prompt = joined(system, some_tokens(9, 64, 2)), .max_new_tokens = 6};
    const Job companion{.prompt = joined(system, some_tokens(3, 64, 3)), .max_new_tokens = 12};
    const ColdAnswer victim_alone = support::cold_answer(model, victim);
    const ColdAnswer companion_alone = support::cold_answer(model, companion);
    for (const Sharing sharing : {Sharing::finished_rows, Sharing::prefill_chunks, Sharing::off}) {
        bool finished_first = false;
        std::size_t points = 0;
        for (; !finished_first; ++points) {
            INFO("sharing " << static_cast<int>(sharing) << ", after " << points << " steps");
            BatchEngine engine(model, 16, page_tokens,
                               {.prefill_chunk_tokens = 3, .sharing = sharing});
            engine.answer({.prompt = joined(system, {1, 2}), .max_new_tokens = 1});
            const std::size_t before = engine.cache.peek(victim.prompt).cached_tokens;
            const JobId aborted = engine.batcher.submit(victim);
            const JobId other = engine.batcher.submit(companion);
            for (std::size_t i = 0; i < points; ++i) REQUIRE(engine.step());
            const std::size_t published = published_now(engine, aborted, before);
            finished_first = !engine.abort(aborted);
            REQUIRE(engine.batcher.lease(aborted) == nullptr);
            CHECK_FALSE(engine.abort(aborted));
            engine.run();
            support::require_same_answer(engine.batcher.result(other), companion_alone);
            engine.require_nothing_leaked();
            if (finished_first) continue;
            CHECK(engine.batcher.status(aborted) == JobStatus::aborted);
            const auto all = joined(victim.prompt, victim_alone.tokens);
            CHECK(engine.cache.peek(all).cached_tokens == published);
        }
        // Queued, the chunks of the prefill, and every decode step but the last were all visited.
        CHECK(points > victim.prompt.size() / 3 / 2 + 6);
    }
}

TEST_CASE("a job that waits for pages, first or again, can be aborted in the queue", "[P6]") {
    const auto model = seeded_model(presets::llama_tiny());
    for (const Sharing sharing : {Sharing::finished_rows, Sharing::off}) {
        BatchEngine engine(model, 8, page_tokens, {.prefill_chunk_tokens = 4, .sharing = sharing});
        const Job job{.prompt = some_tokens(12, 64, 1), .max_new_tokens = 12};
        const JobId oldest = engine.batcher.submit(job);
        const JobId young =
            engine.batcher.submit({.prompt = some_tokens(12, 64, 2), .max_new_tokens = 12});
        const JobId waiting = engine.batcher.submit({.prompt = some_tokens(12, 64, 3)});
        REQUIRE(engine.step());
        REQUIRE(engine.batcher.status(waiting) == JobStatus::queued);
        CHECK(engine.abort(waiting));
        while (engine.batcher.result(young).preemptions == 0) REQUIRE(engine.step());
        REQUIRE(engine.batcher.status(young) == JobStatus::queued);
        CHECK(engine.abort(young));
        CHECK(engine.batcher.queued() == 0);
        engine.run();
        support::require_same_answer(engine.batcher.result(oldest),
                                     support::cold_answer(model, job));
        engine.require_nothing_leaked();
    }
}

TEST_CASE("a batcher that dies in mid-run gives everything back", "[L1]") {
    const auto model = seeded_model(presets::llama_tiny());
    BatchEngine engine(model, 32, page_tokens);
    for (std::size_t steps = 0; steps < 10; ++steps) {
        {
            Batcher<> batcher(engine.cache, engine.store, engine.decoder,
                              {.prefill_chunk_tokens = 4, .sharing = Sharing::prefill_chunks});
            for (std::uint64_t user = 0; user < 4; ++user) {
                batcher.submit({.prompt = some_tokens(13, 64, user), .max_new_tokens = 20});
            }
            for (std::size_t i = 0; i < steps; ++i) batcher.step();
            CHECK(batcher.running() == (steps == 0 ? 0 : 4));
        }
        support::require_sound(engine.cache);
        engine.require_nothing_leaked();
    }
}
