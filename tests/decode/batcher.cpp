// SPDX-License-Identifier: MIT
// The batcher's own promises: how jobs end, what is refused, and the cursor check.

#include "kvstem/reference/batcher.hpp"

#include <cstddef>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "kvstem/reference/presets.hpp"
#include "kvstem/reference/weights.hpp"
#include "support/batch_engine.hpp"
#include "support/reference.hpp"

using namespace kvstem;
using namespace kvstem::reference;
using support::BatchEngine;
using support::ColdAnswer;
using support::refusal;
using support::seeded_model;
using support::some_tokens;

TEST_CASE("a job ends with the first of its stop tokens, which is its last token") {
    const auto model = seeded_model(presets::llama_tiny());
    Job job{.prompt = some_tokens(9, 64, 1),
            .sampling = {.temperature = 1.0f, .seed = 3},
            .max_new_tokens = 20};
    const ColdAnswer whole = support::cold_answer(model, job);
    job.stop_tokens = {whole.tokens[12], whole.tokens[5]};
    const ColdAnswer cold = support::cold_answer(model, job);
    REQUIRE(cold.tokens.size() <= 6);
    BatchEngine engine(model, 16, 4);
    const JobResult& result = engine.answer(job);
    CHECK(result.status == JobStatus::stopped);
    support::require_same_answer(result, cold);
    CHECK(engine.cache.cached_pages() == (9 + cold.tokens.size() - 1) / 4);
}

TEST_CASE("a job without an answer computes and publishes its prompt") {
    const auto model = seeded_model(presets::llama_tiny());
    BatchEngine engine(model, 16, 4, {.prefill_chunk_tokens = 3});
    const Job job{.prompt = some_tokens(16, 64, 1), .max_new_tokens = 0};
    const JobResult& result = engine.answer(job);
    CHECK(result.status == JobStatus::length);
    CHECK(result.tokens.empty());
    support::require_same_answer(result, support::cold_answer(model, job));
    CHECK(engine.cache.peek(job.prompt).cached_tokens == 16);
}

TEST_CASE("all running rows decode in one step, whatever their age") {
    const auto model = seeded_model(presets::llama_tiny());
    BatchEngine engine(model, 64, 4);
    for (std::uint64_t i = 0; i < 5; ++i) {
        engine.batcher.submit({.prompt = some_tokens(3 + i, 64, i), .max_new_tokens = 9});
        engine.step();
    }
    const auto computed = engine.decoder.tokens_computed();
    const auto steps = engine.batcher.stats().steps;
    engine.step();
    CHECK(engine.batcher.running() == 5);
    CHECK(engine.decoder.tokens_computed() == computed + 5);
    CHECK(engine.batcher.stats().steps == steps + 1);
    engine.run();
    CHECK(engine.decoder.tokens_computed() == engine.batcher.stats().tokens_computed);
    CHECK(engine.batcher.stats().peak_running == 5);
    engine.require_nothing_leaked();
}

TEST_CASE("no more jobs run at a time than are allowed") {
    const auto model = seeded_model(presets::llama_tiny());
    BatchEngine engine(model, 64, 4, {.max_running = 2});
    for (std::uint64_t i = 0; i < 5; ++i) {
        engine.batcher.submit({.prompt = some_tokens(3, 64, i), .max_new_tokens = 2 + i});
    }
    while (engine.step()) CHECK(engine.batcher.running() <= 2);
    CHECK(engine.batcher.stats().peak_running == 2);
    CHECK(engine.batcher.queued() == 0);
}

TEST_CASE("logits that are no numbers fail their job, and its rows are not offered to others") {
    const ModelConfig config = presets::llama_tiny();
    Weights weights = weights_from_seed(config, 1);
    weights.final_norm[3] = std::numeric_limits<float>::quiet_NaN();
    BatchEngine engine(std::make_shared<const Model>(Model(config, std::move(weights))), 16, 4);
    const JobResult& result = engine.answer({.prompt = some_tokens(9, 64, 1)});
    CHECK(result.status == JobStatus::failed);
    CHECK(result.tokens.empty());
    CHECK(engine.cache.cached_pages() == 0);
    engine.require_nothing_leaked();
}

TEST_CASE("what can be drawn from and what not") {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
    const auto can = [](std::vector<float> logits) {
        return reference::detail::can_be_sampled(logits);
    };
    CHECK(can({-infinity, 1}));
    CHECK_FALSE(can({-infinity, -infinity}));
    CHECK_FALSE(can({1, infinity}));
    CHECK_FALSE(can({1, not_a_number}));
    CHECK_FALSE(can({}));
}

TEST_CASE("a wrong submission is refused, names its value and queues nothing", "[R1]") {
    BatchEngine engine(seeded_model(presets::llama_tiny()), 16, 4);
    const auto refused = [&](const Job& job) {
        return refusal<InvalidArgument>([&] { engine.batcher.submit(job); });
    };
    CHECK_THAT(refused({}), ContainsSubstring("empty prompt"));
    CHECK_THAT(refused({.prompt = {1, 64}}), ContainsSubstring("token 64 of a prompt"));
    CHECK_THAT(refused({.prompt = {-1}}), ContainsSubstring("token -1 of a prompt"));
    CHECK_THAT(refused({.prompt = {1}, .sampling = {.temperature = -1}}),
               ContainsSubstring("temperature is -1"));
    CHECK(engine.batcher.queued() == 0);
    CHECK_THAT(refusal<InvalidArgument>([&] { (void)engine.batcher.result(JobId{0}); }),
               ContainsSubstring("job 0 of 0"));
    CHECK_FALSE(engine.step());
    CHECK(engine.batcher.submit({.prompt = {1}}) == JobId{0});
}

TEST_CASE("parts that do not belong together are refused") {
    const auto model = seeded_model(presets::llama_tiny());
    Decoder decoder(model);
    RadixCache<> cache({.page_tokens = 4}, PagePool(8));
    PagedKvStore good(model->config().kv_shape(), 8, 4);
    PagedKvStore small(model->config().kv_shape(), 7, 4);
    PagedKvStore otherwise_paged(model->config().kv_shape(), 8, 2);
    PagedKvStore otherwise_shaped(KvShape{2, 8}, 8, 4);
    const auto refused = [&](PagedKvStore& store, BatcherOptions options) {
        return refusal<InvalidArgument>([&] { Batcher<>(cache, store, decoder, options); });
    };
    CHECK_THAT(refused(small, {}), ContainsSubstring("7 pages of 4 positions for a cache of 8"));
    CHECK_THAT(refused(otherwise_paged, {}), ContainsSubstring("8 pages of 2 positions"));
    CHECK_THAT(refused(otherwise_shaped, {}), ContainsSubstring("2 layers of 8 floats"));
    CHECK_THAT(refused(good, {.prefill_chunk_tokens = 0}), ContainsSubstring("chunks of 0"));
    CHECK_THAT(refused(good, {.max_running = 0}), ContainsSubstring("0 jobs at a time"));
    CHECK(refused(good, {}) == "not refused");
}

TEST_CASE("a cursor, a lease and a KV that disagree stop the step, with the three numbers",
          "[X1]") {
    CHECK_THAT(
        refusal<InvalidArgument>([] { reference::detail::check_cursor(JobId{3}, 16, 12, 16); }),
        ContainsSubstring("job 3 is to compute position 16, but its lease has written 12 and "
                          "its KV holds 16"));
    CHECK_THROWS_AS(reference::detail::check_cursor(JobId{3}, 16, 16, 12), InvalidArgument);
    CHECK_THROWS_AS(reference::detail::check_cursor(JobId{3}, 12, 16, 16), InvalidArgument);

    // In a running batcher: someone declares a row that was never computed.
    BatchEngine engine(seeded_model(presets::llama_tiny()), 16, 4, {.prefill_chunk_tokens = 5});
    const JobId id = engine.batcher.submit({.prompt = some_tokens(12, 64, 1)});
    REQUIRE(engine.step());
    const Token token = 1;
    const_cast<Batcher<>::Lease*>(engine.batcher.lease(id))->wrote({&token, 1});
    CHECK_THAT(refusal<InvalidArgument>([&] { engine.batcher.step(); }),
               ContainsSubstring("position 5, but its lease has written 6 and its KV holds 5"));
    CHECK(engine.abort(id));
    engine.require_nothing_leaked();
}
