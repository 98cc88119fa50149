// SPDX-License-Identifier: MIT
// The claim everything rests on: an answer is the same bits cold and warm, alone and in any
// company.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "catch.hpp"
#include "kvstem/reference/batcher.hpp"
#include "kvstem/reference/checkpoint.hpp"
#include "kvstem/reference/presets.hpp"
#include "support/batch_engine.hpp"
#include "support/reference.hpp"
#include "support/test_data.hpp"
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

/// A conversation's prompts, related as in life: one system prompt, some own beginnings, a
/// repetition, a continuation, a prefix, and one that begins otherwise.
std::vector<Job> some_jobs(std::size_t vocab) {
    const auto system = some_tokens(19, vocab, 1);
    const auto own = joined(system, some_tokens(7, vocab, 2));
    std::vector<Job> jobs;
    for (const auto& prompt : {own, joined(system, some_tokens(2, vocab, 3)), own,
                               joined(own, some_tokens(12, vocab, 4)), some_tokens(16, vocab, 1),
                               some_tokens(11, vocab, 5)}) {
        const std::size_t n = jobs.size();
        jobs.push_back({.prompt = prompt,
                        .sampling = {.temperature = n % 2 == 0 ? 0.0f : 0.9f, .seed = n},
                        .max_new_tokens = 4 + n % 3});
    }
    return jobs;
}

struct Setting {
    std::size_t page_tokens;
    BatcherOptions options;
    std::size_t steps_between;  // two submissions: other company
};

const std::vector<Setting> settings = {
    {1, {.prefill_chunk_tokens = 3, .max_running = 8, .sharing = Sharing::prefill_chunks}, 0},
    {2, {.prefill_chunk_tokens = 1, .max_running = 2, .sharing = Sharing::finished_rows}, 1},
    {4, {.prefill_chunk_tokens = 100, .max_running = 1, .sharing = Sharing::finished_rows}, 3},
    {4,
     {.prefill_chunk_tokens = 5,
      .max_running = 8,
      .sharing = Sharing::prefill_chunks,
      .partial_pages = PartialPages::copy},
     2},
    {16, {.prefill_chunk_tokens = 7, .max_running = 3, .sharing = Sharing::prefill_chunks}, 1},
};

/// Runs all jobs twice on one cache, the second time warm, and compares every answer with its cold
/// one, and in each step every row that a running job holds.
void check_setting(const SharedModel& model, const Setting& setting, const std::vector<Job>& jobs,
                   const std::vector<ColdAnswer>& cold) {
    INFO("pages of " << setting.page_tokens << ", chunks of "
                     << setting.options.prefill_chunk_tokens << ", " << setting.options.max_running
                     << " at a time");
    BatchEngine engine(model, 512 / setting.page_tokens, setting.page_tokens, setting.options);
    std::vector<JobId> ids;
    const auto step = [&] {
        const bool computed = engine.step();
        for (std::size_t i = 0; i < ids.size(); ++i) {
            if (engine.batcher.lease(ids[i]) == nullptr) continue;
            const ContiguousKv rows = engine.rows_of(ids[i]);
            REQUIRE(rows == cold[i % jobs.size()].kv.prefix(rows.length()));
        }
        return computed;
    };
    std::size_t warm_tokens = 0;
    for (std::size_t round = 0; round < 2; ++round) {
        for (const Job& job : jobs) {
            ids.push_back(engine.batcher.submit(job));
            for (std::size_t i = 0; i < setting.steps_between; ++i) step();
        }
        while (step()) {
        }
    }
    for (std::size_t i = 0; i < ids.size(); ++i) {
        const JobResult& result = engine.batcher.result(ids[i]);
        REQUIRE(result.status == JobStatus::length);
        support::require_same_answer(result, cold[i % jobs.size()]);
        const std::size_t rows = jobs[i % jobs.size()].prompt.size() + result.tokens.size() - 1;
        CHECK(result.adopted_tokens + result.computed_tokens == rows);
        if (i < jobs.size()) continue;
        // All was computed in the first round, so what can be adopted is adopted.
        const std::size_t prompt = jobs[i % jobs.size()].prompt.size();
        CHECK(result.adopted_tokens >= (prompt - 1) / setting.page_tokens * setting.page_tokens);
        warm_tokens += result.adopted_tokens;
    }
    CHECK(warm_tokens > 0);
    engine.require_nothing_leaked();
}

void check_model(const SharedModel& model, std::size_t n_settings) {
    const std::vector<Job> jobs = some_jobs(model->config().vocab_size);
    std::vector<ColdAnswer> cold;
    for (const Job& job : jobs) cold.push_back(support::cold_answer(model, job));
    for (std::size_t i = 0; i < n_settings; ++i) check_setting(model, settings[i], jobs, cold);
}

}  // namespace

TEST_CASE("warm answers equal cold ones bit for bit in any company, on every small preset",
          "[X1]") {
    for (const Preset& preset : presets::tiny()) {
        INFO(preset.name);
        check_model(seeded_model(preset.config), settings.size());
    }
}

TEST_CASE("warm answers equal cold ones bit for bit on the demo preset", "[X1]") {
    const auto model = seeded_model(presets::demo());
    const Job job{.prompt = some_tokens(20, model->config().vocab_size, 1), .max_new_tokens = 3};
    const ColdAnswer cold = support::cold_answer(model, job);
    BatchEngine engine(model, 16, 4, {.prefill_chunk_tokens = 6});
    support::require_same_answer(engine.answer(job), cold);
    const JobId id = engine.batcher.submit(job);
    engine.run();
    CHECK(engine.batcher.result(id).adopted_tokens == 16);
    support::require_same_answer(engine.batcher.result(id), cold);
}

TEST_CASE("warm answers equal cold ones bit for bit on the real model", "[X1]") {
    const auto path = support::test_data("models/stories260K.bin");
    if (!path) KVSTEM_SKIP(support::no_test_data);
    check_model(std::make_shared<const Model>(load_checkpoint(*path)), 1);
}

TEST_CASE("a job's answer does not depend on which others run beside it", "[X1]") {
    const auto model = seeded_model(presets::glm_moe_tiny());
    const Job job{.prompt = some_tokens(15, 64, 1),
                  .sampling = {.temperature = 1.0f, .seed = 7},
                  .max_new_tokens = 9};
    const ColdAnswer cold = support::cold_answer(model, job);
    for (std::uint64_t seed = 0; seed < 6 * kvstem_test::test_scale(); ++seed) {
        INFO("seed " << seed);
        SplitMix64 random(seed);
        BatchEngine engine(model, 128, 4, {.prefill_chunk_tokens = 1 + random.next() % 6});
        JobId id{};
        for (std::size_t i = 0; i < 7; ++i) {
            if (i == seed % 7) id = engine.batcher.submit(job);
            const std::size_t length = 1 + random.next() % 24;
            engine.batcher.submit({.prompt = some_tokens(length, 64, random.next()),
                                   .max_new_tokens = 1 + random.next() % 10});
            if (random.next() % 2 == 0) engine.step();
        }
        engine.run();
        support::require_same_answer(engine.batcher.result(id), cold);
        engine.require_nothing_leaked();
    }
}
