// SPDX-License-Identifier: MIT
// A pool that is too small for everybody: jobs wait, are preempted, and all end with the same bits.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "kvstem/reference/batcher.hpp"
#include "kvstem/reference/presets.hpp"
#include "support/batch_engine.hpp"
#include "support/reference.hpp"
#include "support/test_scale.hpp"

using namespace kvstem;
using namespace kvstem::reference;
using support::BatchEngine;
using support::ColdAnswer;
using support::joined;
using support::seeded_model;
using support::SharedModel;
using support::some_tokens;

namespace {

constexpr std::size_t page_tokens = 4;

SharedModel wide_vocabulary_model() {
    ModelConfig config = presets::llama_tiny();
    config.vocab_size = 128;
    return seeded_model(config);
}

/// 8 tokens and 3 sampled: 10 rows, 3 page groups, of which 2 are whole and stay behind.
Job hundredth(std::size_t number) {
    Job job{.prompt = some_tokens(8, 128, number), .max_new_tokens = 3};
    job.prompt[0] = static_cast<Token>(number);  // different from the first token on
    return job;
}

std::size_t obtainable(const BatchEngine& engine) {
    return engine.cache.free_pages() + engine.cache.evictable_pages();
}

}  // namespace

TEST_CASE("a pool of 8 page groups serves a hundred requests that need 3 and leave 2 behind",
          "[E4][G4]") {
    const auto model = wide_vocabulary_model();
    for (const std::size_t at_a_time : {1u, 2u, 64u}) {
        BatchEngine engine(model, 8, page_tokens,
                           {.prefill_chunk_tokens = 5, .max_running = at_a_time});
        std::vector<JobId> ids;
        for (std::size_t i = 0; i < 100; ++i) ids.push_back(engine.batcher.submit(hundredth(i)));
        std::size_t least = 8;
        while (engine.step()) least = std::min(least, obtainable(engine));
        for (std::size_t i = 0; i < 100; ++i) {
            const JobResult& result = engine.batcher.result(ids[i]);
            REQUIRE(result.status == JobStatus::length);
            REQUIRE(result.computed_tokens >= 10);
            if (i % 9 == 0) {
                support::require_same_answer(result, support::cold_answer(model, hundredth(i)));
            }
        }
        // Two at a time, there is a page to be had between any two steps. More at a time may hold
        // all of them for a moment; then the youngest gives way, after it has published what it
        // has.
        if (at_a_time <= 2) {
            CHECK(least > 0);
            CHECK(engine.cache.stats().published_pages == 200);
            CHECK(engine.batcher.stats().preemptions == 0);
        } else {
            CHECK(engine.batcher.stats().preemptions > 0);
        }
        CHECK(obtainable(engine) == 8);
        engine.require_nothing_leaked();
    }
}

TEST_CASE("one request after the other on a pool of 8 leaves room for the next every time",
          "[E1]") {
    const auto model = wide_vocabulary_model();
    BatchEngine engine(model, 8, page_tokens);
    for (std::size_t i = 0; i < 100; ++i) {
        const JobResult& result = engine.answer(hundredth(i));
        REQUIRE(result.status == JobStatus::length);
        REQUIRE(result.adopted_tokens == 0);
        REQUIRE(obtainable(engine) == 8);
        // The third page of each request comes back free, and is evicted for only when there is
        // none.
        REQUIRE(engine.cache.cached_pages() == std::min<std::size_t>(7, 2 * (i + 1)));
    }
    engine.require_nothing_leaked();
}

TEST_CASE("under pressure the youngest is preempted, nobody is overtaken, and the bits stay",
          "[X1]") {
    for (const ModelConfig& config : {presets::llama_tiny(), presets::glm_moe_tiny()}) {
        const auto model = seeded_model(config);
        std::vector<Job> jobs;
        std::vector<ColdAnswer> cold;
        for (std::size_t i = 0; i < 5; ++i) {
            jobs.push_back({.prompt = joined(some_tokens(5, 64, 1), some_tokens(4 + i, 64, 2 + i)),
                            .sampling = {.temperature = i % 2 == 0 ? 0.8f : 0.0f, .seed = i},
                            .max_new_tokens = 14});
            cold.push_back(support::cold_answer(model, jobs.back()));
        }
        for (const Sharing sharing :
             {Sharing::finished_rows, Sharing::prefill_chunks, Sharing::off}) {
            for (const std::size_t pages :
                 {13u, 17u, 26u}) {  // 13 is what the last one needs alone
                INFO(pages << " pages, sharing " << static_cast<int>(sharing));
                BatchEngine engine(model, pages, 2,
                                   {.prefill_chunk_tokens = 4, .sharing = sharing});
                std::vector<JobId> ids;
                for (const Job& job : jobs) ids.push_back(engine.batcher.submit(job));
                while (engine.step()) {
                    // Whoever is older is ahead: no running job behind a queued one.
                    bool queued_before = false;
                    for (const JobId id : ids) {
                        const JobStatus status = engine.batcher.status(id);
                        if (status == JobStatus::running) REQUIRE_FALSE(queued_before);
                        queued_before = queued_before || status == JobStatus::queued;
                    }
                }
                std::size_t preemptions = 0;
                for (std::size_t i = 0; i < ids.size(); ++i) {
                    const JobResult& result = engine.batcher.result(ids[i]);
                    REQUIRE(result.status == JobStatus::length);
                    support::require_same_answer(result, cold[i]);
                    preemptions += result.preemptions;
                }
                CHECK(engine.batcher.result(ids.front()).preemptions == 0);
                CHECK(preemptions > 0);
                CHECK(engine.batcher.stats().preemptions == preemptions);
                CHECK(engine.batcher.stats().peak_pages == pages);
                engine.require_nothing_leaked();
            }
        }
    }
}

TEST_CASE("a preempted job publishes its whole pages and adopts what is left of them", "[P1]") {
    const auto model = seeded_model(presets::llama_tiny());
    BatchEngine engine(model, 8, page_tokens, {.prefill_chunk_tokens = 16});
    const Job first{.prompt = some_tokens(12, 64, 1), .max_new_tokens = 6};
    const Job second{.prompt = some_tokens(13, 64, 2), .max_new_tokens = 14};
    const JobId a = engine.batcher.submit(first);
    const JobId b = engine.batcher.submit(second);
    std::size_t written = 0;
    while (engine.batcher.result(b).preemptions == 0) {
        if (engine.batcher.lease(b) != nullptr) written = engine.batcher.lease(b)->written();
        REQUIRE(engine.step());
    }
    const auto sequence = joined(second.prompt, engine.batcher.result(b).tokens);
    CHECK(sequence.size() == written + 1);
    const std::size_t kept = engine.cache.peek(sequence).cached_tokens;
    CHECK(kept >= 8);
    CHECK(kept <= written / page_tokens * page_tokens);
    engine.run();
    CHECK(engine.batcher.result(b).adopted_tokens == 0);
    CHECK(engine.batcher.result(b).computed_tokens < 13 + 13 + written);
    support::require_same_answer(engine.batcher.result(a), support::cold_answer(model, first));
    support::require_same_answer(engine.batcher.result(b), support::cold_answer(model, second));
    engine.require_nothing_leaked();
}

TEST_CASE("a job that alone exceeds pool or context is refused at submission, the largest is not",
          "[E4]") {
    ModelConfig config = presets::llama_tiny();
    config.max_context = 40;
    const auto model = seeded_model(config);
    BatchEngine small(model, 8, page_tokens);  // 32 positions
    const auto refused = [](BatchEngine& engine, std::size_t prompt, std::size_t answer) {
        const JobId id = engine.batcher.submit(
            {.prompt = some_tokens(prompt, 64, prompt), .max_new_tokens = answer});
        const bool is_refused = engine.batcher.status(id) == JobStatus::never_fits;
        engine.run();
        CHECK(is_refused == (engine.batcher.status(id) != JobStatus::length));
        CHECK(engine.batcher.queued() == 0);
        return is_refused;
    };
    CHECK(refused(small, 33, 1));
    CHECK(refused(small, 25, 9));
    CHECK_FALSE(refused(small, 25, 8));  // 32 rows: the last token needs none
    CHECK_FALSE(refused(small, 32, 1));
    CHECK_FALSE(refused(small, 32, 0));
    CHECK(refused(small, 1, ~std::size_t{0}));
    CHECK(small.cache.stats().never_fits == 0);  // the cache was not even asked

    BatchEngine large(model, 16, page_tokens);
    CHECK(refused(large, 41, 1));
    CHECK_FALSE(refused(large, 40, 5));
    CHECK_FALSE(refused(large, 1, ~std::size_t{0}));
    large.require_nothing_leaked();
}

TEST_CASE("an answer that fills the context ends there") {
    ModelConfig config = presets::llama_tiny();
    config.max_context = 12;
    const auto model = seeded_model(config);
    for (const std::size_t prompt : {7u, 11u, 12u}) {
        BatchEngine engine(model, 8, page_tokens);
        const Job job{.prompt = some_tokens(prompt, 64, 1), .max_new_tokens = 100};
        const JobResult& result = engine.answer(job);
        CHECK(result.status == JobStatus::length);
        CHECK(result.tokens.size() == 13 - prompt);
        support::require_same_answer(result, support::cold_answer(model, job));
    }
}

TEST_CASE("while others hold the pages the batcher says so instead of spinning, and goes on later",
          "[E4][E5]") {
    const auto model = seeded_model(presets::llama_tiny());
    BatchEngine engine(model, 8, page_tokens);
    const Job job{.prompt = some_tokens(9, 64, 1), .max_new_tokens = 14};
    auto other = engine.cache.acquire(some_tokens(22, 64, 2));  // 6 pages
    REQUIRE(other);
    const JobId id = engine.batcher.submit(job);
    CHECK_FALSE(engine.step());
    CHECK_FALSE(engine.step());
    CHECK(engine.batcher.status(id) == JobStatus::queued);

    // With five pages left for it, it runs until it needs a sixth, and then waits for one.
    REQUIRE(other.lease.cut_back(0, [](PageId, PageId, std::size_t) {}) == Admission::granted);
    REQUIRE(other.lease.grow_to(3 * page_tokens) == Admission::granted);
    engine.run();
    CHECK(engine.batcher.status(id) == JobStatus::queued);
    CHECK(engine.batcher.result(id).tokens.size() == 12);
    CHECK(engine.batcher.result(id).preemptions == 1);
    other.lease.release();
    engine.run();
    support::require_same_answer(engine.batcher.result(id), support::cold_answer(model, job));
    engine.require_nothing_leaked();
}

TEST_CASE(
    "random jobs, aborts, evictions and clears on a tiny pool leave every answer's bits alone",
    "[X1][P6]") {
    const auto model = seeded_model(presets::mixed_window_tiny());
    std::vector<Job> jobs;
    std::vector<ColdAnswer> cold;
    for (std::size_t i = 0; i < 12; ++i) {
        jobs.push_back({.prompt = joined(some_tokens(i % 3 * 5, 64, 1), some_tokens(1 + i, 64, i)),
                        .sampling = {.temperature = i % 2 == 0 ? 0.7f : 0.0f, .seed = i},
                        .max_new_tokens = 1 + i * 5 % 12});
        if (i % 4 == 3) jobs.back().salt = "tenant";
        cold.push_back(support::cold_answer(model, jobs.back()));
    }
    for (std::uint64_t seed = 0; seed < 12 * kvstem_test::test_scale(); ++seed) {
        INFO("seed " << seed);
        SplitMix64 random(seed);
        const std::size_t pages_of = std::size_t{1} << seed % 4;
        BatchEngine engine(model, 48 / pages_of, pages_of,
                           {.prefill_chunk_tokens = 1 + random.next() % 7,
                            .max_running = 1 + random.next() % 8,
                            .sharing = Sharing{static_cast<int>(random.next() % 3)},
                            .partial_pages = PartialPages{static_cast<int>(random.next() % 2)}});
        std::vector<std::pair<JobId, std::size_t>> submitted;
        for (std::size_t operation = 0; operation < 120; ++operation) {
            switch (random.next() % 10) {
                case 0:
                case 1: {
                    const std::size_t which = random.next() % jobs.size();
                    submitted.emplace_back(engine.batcher.submit(jobs[which]), which);
                    break;
                }
                case 2:
                    if (!submitted.empty() && random.next() % 3 == 0) {
                        engine.abort(submitted[random.next() % submitted.size()].first);
                    }
                    break;
                case 3:
                    engine.cache.evict(random.next() % 4);
                    break;
                case 4:
                    if (random.next() % 8 == 0) engine.cache.clear();
                    if (random.next() % 8 == 0) engine.cache.drop({.salt = "tenant"});
                    break;
                default:
                    engine.step();
            }
            support::require_sound(engine.cache);
        }
        engine.run();
        CHECK(engine.batcher.queued() == 0);
        for (const auto& [id, which] : submitted) {
            const JobResult& result = engine.batcher.result(id);
            REQUIRE(is_final(result.status));
            if (result.status == JobStatus::aborted) continue;
            REQUIRE(result.status == JobStatus::length);
            support::require_same_answer(result, cold[which]);
        }
        engine.require_nothing_leaked();
    }
}
