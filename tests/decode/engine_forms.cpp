// SPDX-License-Identifier: MIT
// The reference decoder behind PrefixCachedEngine, in each of its three forms, on every small
// preset and on a trained model: answers equal those without a cache, bit for bit.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "catch.hpp"
#include "kvstem/prefix_cached_engine.hpp"
#include "kvstem/reference/checkpoint.hpp"
#include "kvstem/reference/engines.hpp"
#include "support/reference.hpp"
#include "support/test_data.hpp"

using namespace kvstem::reference;
using kvstem::EngineForm;
using kvstem::PrefixCachedEngine;
using kvstem::Token;
using Tokens = std::vector<Token>;
using SharedModel = std::shared_ptr<const Model>;

namespace {

constexpr std::size_t page = 4;

template <class Engine>
Engine make(const SharedModel& model, std::size_t blocks) {
    if constexpr (kvstem::engine_form<Engine> == EngineForm::paged) {
        return Engine(model, blocks, page);
    } else {
        return Engine(model);
    }
}
template <class Engine>
typename PrefixCachedEngine<Engine>::Options options(std::size_t blocks) {
    typename PrefixCachedEngine<Engine>::Options options{};
    if constexpr (kvstem::engine_form<Engine> == EngineForm::row) {
        options.block_tokens = page;
        options.max_blocks = blocks;
    } else if constexpr (kvstem::engine_form<Engine> == EngineForm::state) {
        options.max_snapshots = blocks;
    }
    return options;
}

/// Tokens and the logits each was drawn from.
struct Answer {
    Tokens tokens;
    std::vector<std::vector<float>> logits;
};

/// Greedy or seeded, and remembering every row of logits.
auto recording(Answer& answer, Sampler& sampler) {
    return [&answer, &sampler](std::span<const float> logits) {
        answer.logits.emplace_back(logits.begin(), logits.end());
        return sampler.sample(logits);
    };
}

Answer uncached(const SharedModel& model, const Tokens& prompt, std::size_t n,
                const SamplingParams& sampling) {
    Decoder decoder(model);
    ContiguousKv kv(model->config().kv_shape());
    Sampler sampler(sampling);
    Answer answer;
    auto draw = recording(answer, sampler);
    Logits logits = decoder.forward_batch(prompt, 0, kv, LogitsFor::last_token);
    for (;;) {
        answer.tokens.push_back(draw(logits.last()));
        if (answer.tokens.size() == n) return answer;
        logits = decoder.forward_batch(std::span(answer.tokens).last(1), kv.length(), kv);
    }
}

template <class Engine>
Answer cached_answer(PrefixCachedEngine<Engine>& cached, const Tokens& prompt, std::size_t n,
                     const SamplingParams& sampling) {
    Sampler sampler(sampling);
    Answer answer;
    auto result =
        cached.generate(prompt, {.max_new_tokens = n}, [](Token) {}, recording(answer, sampler));
    answer.tokens = result.tokens;
    return answer;
}

bool same_bits(const Answer& a, const Answer& b) {
    return a.tokens == b.tokens &&
           std::equal(a.logits.begin(), a.logits.end(), b.logits.begin(), b.logits.end(),
                      [](const auto& x, const auto& y) { return support::same_bits(x, y); });
}

/// A hundred prompts that share prefixes of every length 0 … 3P + 1 with one of two trunks.
std::vector<Tokens> hundred_prompts(std::size_t vocab_size) {
    std::vector<Tokens> prompts;
    std::mt19937 random(3);
    for (std::size_t i = 0; i < 100; ++i) {
        const std::size_t shared = i % (3 * page + 2);
        Tokens prompt = support::some_tokens(shared, vocab_size, i % 2);
        const Tokens own = support::some_tokens(1 + random() % 5, vocab_size, 100 + i);
        prompt.insert(prompt.end(), own.begin(), own.end());
        prompts.push_back(std::move(prompt));
    }
    std::shuffle(prompts.begin(), prompts.end(), random);
    return prompts;
}

template <class Engine>
void check_hundred_prompts(const SharedModel& model) {
    constexpr std::size_t blocks = 7;
    Engine engine = make<Engine>(model, blocks);
    PrefixCachedEngine<Engine> cached(engine, options<Engine>(blocks));
    for (const Tokens& prompt : hundred_prompts(model->config().vocab_size)) {
        SamplingParams sampling;
        if (prompt.size() % 2 == 1) sampling = {.temperature = 0.9f, .top_p = 0.95f, .seed = 5};
        const Answer warm = cached_answer(cached, prompt, 4, sampling);
        CHECK(same_bits(warm, uncached(model, prompt, 4, sampling)));
    }
    CHECK(cached.audit().ok());
    CHECK(cached.stats().reused_tokens > 0);
    CHECK(cached.stats().evicted_blocks > 0);
    CHECK(cached.stats().computed_tokens == engine.tokens_computed());
}

/// The same prompt twice and then one more turn, counted by the engine itself.
template <class Engine>
void check_conversation(const SharedModel& model, std::size_t prompt_tokens) {
    Engine engine = make<Engine>(model, 64);
    PrefixCachedEngine<Engine> cached(engine, options<Engine>(64));
    const std::size_t vocab_size = model->config().vocab_size;
    const Tokens prompt = support::some_tokens(prompt_tokens, vocab_size, 9);
    for (const SamplingParams& sampling :
         {SamplingParams{}, SamplingParams{.temperature = 0.8f, .seed = 7}}) {
        cached.clear_cache();
        const Answer cold = uncached(model, prompt, 9, sampling);
        auto before = engine.tokens_computed();
        CHECK(same_bits(cached_answer(cached, prompt, 9, sampling), cold));
        CHECK(engine.tokens_computed() - before == prompt_tokens + 8);
        before = engine.tokens_computed();
        CHECK(same_bits(cached_answer(cached, prompt, 9, sampling), cold));
        const bool whole = cached.form == EngineForm::state;
        // The first answer completed the block in which the prompt ends.
        const std::size_t rows = prompt_tokens + 8;  // the last sampled token has none
        const std::size_t kept = whole ? rows : rows / page * page;
        const std::size_t reused = whole ? prompt_tokens : std::min(kept, prompt_tokens - 1);
        CHECK(engine.tokens_computed() - before == prompt_tokens + 8 - reused);

        Tokens next = prompt;
        next.insert(next.end(), cold.tokens.begin(), cold.tokens.end());
        next.push_back(1);
        before = engine.tokens_computed();
        CHECK(same_bits(cached_answer(cached, next, 5, sampling),
                        uncached(model, next, 5, sampling)));
        CHECK(engine.tokens_computed() - before == next.size() + 4 - kept);
    }
}

/// A model all of whose layers slide by one window.
SharedModel sliding_model(std::size_t window) {
    ModelConfig config = presets::windowed_tiny();
    config.windows = {window, window};
    return std::make_shared<const Model>(Model::from_seed(config, 3));
}

Tokens first(const Tokens& tokens, std::size_t n) {
    return {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(n)};
}
Tokens with(Tokens tokens, const Tokens& more) {
    tokens.insert(tokens.end(), more.begin(), more.end());
    return tokens;
}

}  // namespace

TEMPLATE_TEST_CASE("a hundred prompts in a cache too small for them, on every small preset",
                   "[engine][X1]", PagedEngine, RowEngine, StateEngine) {
    for (const Preset& preset : presets::tiny()) {
        INFO(preset.name);
        check_hundred_prompts<TestType>(
            std::make_shared<const Model>(Model::from_seed(preset.config, 11)));
    }
}

TEMPLATE_TEST_CASE("a conversation computes only what is new, on every small preset",
                   "[engine][X1]", PagedEngine, RowEngine, StateEngine) {
    for (const Preset& preset : presets::tiny()) {
        INFO(preset.name);
        const auto model = std::make_shared<const Model>(Model::from_seed(preset.config, 12));
        for (const std::size_t length : {1u, 3u, 4u, 16u, 29u})
            check_conversation<TestType>(model, length);
    }
}

TEMPLATE_TEST_CASE("a trained model behind a cache answers as without", "[engine][X1]", PagedEngine,
                   RowEngine, StateEngine) {
    const auto path = support::test_data("models/stories260K.bin");
    if (!path) KVSTEM_SKIP(support::no_test_data);
    const auto model = std::make_shared<const Model>(load_checkpoint(*path));
    check_conversation<TestType>(model, 37);
    check_hundred_prompts<TestType>(model);
}

TEST_CASE("a snapshot whose window has slid is not cut before it", "[engine][S6][C30]") {
    const SharedModel model = sliding_model(4);
    StateEngine engine(model);
    PrefixCachedEngine cached(engine);
    const Tokens ten = support::some_tokens(10, 64, 1);
    const Tokens branch = with(first(ten, 6), {60, 61});
    (void)cached.generate(ten, {.max_new_tokens = 0});
    CHECK(cached.peek(branch) == 0);
    Answer answer = cached_answer(cached, branch, 3, {});
    CHECK(same_bits(answer, uncached(model, branch, 3, {})));
    CHECK(cached.stats().reused_tokens == 0);

    cached.clear_cache();
    (void)cached.generate(first(ten, 5), {.max_new_tokens = 0});
    (void)cached.generate(ten, {.max_new_tokens = 0});
    CHECK(cached.peek(branch) == 5);
    answer = cached_answer(cached, branch, 3, {});
    CHECK(same_bits(answer, uncached(model, branch, 3, {})));
    CHECK(cached.stats().reused_tokens == 5 + 5);  // the ten went on from the five, the branch too
}

TEST_CASE("a snapshot whose window has not slid goes on where it ends", "[engine][S6][C31]") {
    const SharedModel model = sliding_model(8);
    StateEngine engine(model);
    PrefixCachedEngine cached(engine);
    const Tokens five = support::some_tokens(5, 64, 1);
    (void)cached.generate(five, {.max_new_tokens = 0});
    const auto result = cached.generate(with(five, {7}), {.max_new_tokens = 3});
    CHECK(result.reused_tokens == 5);
    CHECK(result.tokens == uncached(model, with(five, {7}), 3, {}).tokens);
    CHECK(cached.peek(with(first(five, 3), {9})) == 3);
}

TEST_CASE("a saved state of a sliding window holds what the window reads and no more",
          "[engine][C30]") {
    const SharedModel model = sliding_model(8);
    StateEngine engine(model);
    const Tokens all = support::some_tokens(100, 64, 2);
    (void)engine.forward(all, 0);
    const StateEngine::State state = engine.save_state();
    CHECK(state.first_kept == 93);
    CHECK(state.bytes() == 7 * 2 * 2 * model->config().row_size() * sizeof(float));
    StateEngine other(model);
    other.load_state(state);
    CHECK_FALSE(other.cut(99));
    CHECK(other.length() == 100);
    const Tokens next{5};
    const auto warm = other.forward(next, 100);
    const auto cold = engine.forward(next, 100);
    CHECK(support::same_bits(warm, cold));
    // In memory, the engine that computed it all still has it all.
    CHECK(engine.cut(50));
}

TEST_CASE("an engine refuses rows and states of another shape", "[engine]") {
    using kvstem::InvalidArgument;
    const auto model = std::make_shared<const Model>(Model::from_seed(presets::llama_tiny(), 1));
    RowEngine rows(model);
    std::vector<std::byte> bytes(rows.row_bytes() * 2);
    CHECK(rows.read_rows(0, 3, bytes) ==
          rows.row_bytes() * 3);  // writes nothing, says what it needs
    CHECK_THROWS_AS(rows.write_rows(0, 3, bytes), InvalidArgument);
    CHECK_THROWS_AS(rows.write_rows(1, 3, bytes), InvalidArgument);  // position 0 is not there
    StateEngine states(model);
    StateEngine::State state;
    state.length = 2;
    CHECK_THROWS_AS(states.load_state(state), InvalidArgument);
    CHECK_FALSE(states.cut(1));
}

TEST_CASE("a windowed engine over pages answers at any length in a pool of its bound, warm as cold",
          "[W1][W2][X1]") {
    const auto model = std::make_shared<Model>(Model::from_seed(presets::windowed_tiny(), 9));
    const std::size_t window = model->config().sliding_window();
    const Tokens prompt = support::some_tokens(37, model->config().vocab_size, 4);
    const Answer expected = uncached(model, prompt, 400, {});
    const std::size_t pages = (prompt.size() + page - 1) / page +
                              kvstem::SlidingWindow{.window_tokens = window}.bound_pages(page);
    PagedEngine engine(model, pages, page);
    PrefixCachedEngine cached(engine, {.window_pages = kvstem::WindowPages::given_back});
    for (const std::size_t reused : {std::size_t{0}, prompt.size() - 1}) {
        const auto before = cached.stats().reused_tokens;
        const Answer answer = cached_answer(cached, prompt, 400, {});
        CHECK(answer.tokens == expected.tokens);
        CHECK(answer.logits == expected.logits);
        // Whole pages of the prompt; its partial one was given to later positions.
        CHECK(cached.stats().reused_tokens - before == reused / page * page);
        CHECK(cached.audit().ok());
    }
}

TEST_CASE("an engine that mixes full and windowed layers keeps its pages and runs out of them",
          "[W1]") {
    const auto model = std::make_shared<Model>(Model::from_seed(presets::mixed_window_tiny(), 9));
    const Tokens prompt = support::some_tokens(37, model->config().vocab_size, 4);
    PagedEngine engine(model, 12, page);
    PrefixCachedEngine cached(engine, {.window_pages = kvstem::WindowPages::given_back});
    const auto result = cached.generate(prompt, {.max_new_tokens = 100});
    CHECK(result.finish == kvstem::FinishReason::out_of_pages);
    CHECK(result.tokens == Tokens(uncached(model, prompt, result.tokens.size(), {}).tokens));
    CHECK(result.tokens.size() == 12 * page - prompt.size() + 1);
}
