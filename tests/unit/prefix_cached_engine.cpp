// SPDX-License-Identifier: MIT
// PrefixCachedEngine in front of engines whose every row shows where it came from.

#include "kvstem/prefix_cached_engine.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "catch.hpp"
#include "support/reference.hpp"
#include "support/toy_engines.hpp"

using kvstem::EngineForm;
using kvstem::FinishReason;
using kvstem::GenerateParams;
using kvstem::GenerateResult;
using kvstem::InvalidArgument;
using kvstem::Namespace;
using kvstem::PrefixCachedEngine;
using kvstem::Token;
using namespace kvstem_test;
using support::refusal;

namespace {

constexpr std::size_t page = 4;  // P in all forms here

/// Options with room for `blocks` blocks, pages or snapshots; a paged engine is made with that
/// many.
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

/// An engine with its cache.
template <class Engine>
struct Rig {
    explicit Rig(std::size_t blocks = 64)
        : engine(make(blocks)), cached(engine, options<Engine>(blocks)) {}

    static Engine make(std::size_t blocks) {
        if constexpr (kvstem::engine_form<Engine> == EngineForm::paged) {
            return Engine(blocks, page);
        } else {
            return Engine{};
        }
    }
    GenerateResult generate(const Tokens& prompt, std::size_t max_new_tokens = 0) {
        return cached.generate(prompt, {.max_new_tokens = max_new_tokens});
    }

    Engine engine;
    PrefixCachedEngine<Engine> cached;
};

template <class Cached>
void check_audit(const Cached& cached) {
    for (const auto& finding : cached.audit().findings) {
        FAIL_CHECK(finding.what << " (" << finding.subject << ")");
    }
}

Tokens some(std::size_t n, std::uint64_t seed = 1) {
    return support::some_tokens(n, 40, seed);
}

Tokens first(const Tokens& tokens, std::size_t n) {
    return {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(n)};
}
Tokens with(Tokens tokens, const Tokens& more) {
    tokens.insert(tokens.end(), more.begin(), more.end());
    return tokens;
}

/// All that can be seen of a cache without changing it.
template <class Cached>
std::vector<std::uint64_t> look(const Cached& cached, const std::vector<Tokens>& prompts) {
    const auto s = cached.stats();
    std::vector<std::uint64_t> seen{s.hits,           s.misses,        s.queried_tokens,
                                    s.reused_tokens,  s.missed_tokens, s.stored_blocks,
                                    s.evicted_blocks, s.blocks,        s.bytes};
    for (const Tokens& prompt : prompts) {
        for (std::size_t n = 0; n <= prompt.size(); ++n) {
            seen.push_back(cached.peek(std::span(prompt).first(n)));
        }
    }
    return seen;
}

/// What the second of two equal prompts of this length reuses.
template <class Engine>
std::size_t reused_of_equal(std::size_t length) {
    if (kvstem::engine_form<Engine> == EngineForm::state || length == 0) return length;
    if (std::is_same_v<Engine, ToyPagedEngine>) return (length - 1) / page * page;
    return std::min(length / page * page, length - 1);
}

}  // namespace

#define EVERY_FORM ToyPagedEngine, ToyCopyingPagedEngine, ToyRowEngine, ToyStateEngine

static_assert(kvstem::engine_form<ToyPagedEngine> == EngineForm::paged);
static_assert(kvstem::engine_form<ToyRowEngine> == EngineForm::row);
static_assert(kvstem::engine_form<ToyStateEngine> == EngineForm::state);

// ── Reuse ──

TEMPLATE_TEST_CASE("a second identical prompt computes only the rest, by the engine's own count",
                   "[engine]", EVERY_FORM) {
    Rig<TestType> rig;
    const Tokens prompt = some(21);
    const auto cold = rig.generate(prompt, 6);
    CHECK(rig.engine.computed == 21 + 5);
    CHECK(cold.computed_tokens == 26);
    CHECK(cold.reused_tokens == 0);
    const auto warm = rig.generate(prompt, 6);
    const std::size_t reused = reused_of_equal<TestType>(21);
    CHECK(rig.engine.computed == 26 + 26 - reused);
    CHECK(warm.reused_tokens == reused);
    CHECK(warm.computed_tokens == 26 - reused);
    CHECK(warm.tokens == cold.tokens);
    CHECK(warm.tokens == uncached_answer(prompt, 6));
    check_audit(rig.cached);
}

TEMPLATE_TEST_CASE("what is reused of each length follows the table", "[engine][M4][C16]",
                   EVERY_FORM) {
    const Tokens all = some(3 * page + 1);
    for (std::size_t length = 0; length <= all.size(); ++length) {
        INFO(length);
        const Tokens prompt = first(all, length);
        Rig<TestType> rig;
        (void)rig.generate(prompt);
        CHECK(rig.generate(prompt).reused_tokens == reused_of_equal<TestType>(length));
        Rig<TestType> other;
        (void)other.generate(prompt);
        const bool whole = kvstem::engine_form<TestType> == EngineForm::state;
        const auto longer = other.generate(with(prompt, {7}), 3);
        CHECK(longer.reused_tokens == (whole ? length : length / page * page));
        CHECK(longer.tokens == uncached_answer(with(prompt, {7}), 3));
    }
}

TEMPLATE_TEST_CASE("a prompt cached to its end computes the one token it needs", "[engine][M4]",
                   ToyCopyingPagedEngine, ToyRowEngine) {
    Rig<TestType> rig;
    const Tokens prompt = some(4 * page);
    (void)rig.generate(prompt);
    const auto before = rig.engine.computed;
    CHECK(rig.generate(prompt, 1).tokens == uncached_answer(prompt, 1));
    CHECK(rig.engine.computed == before + 1);
}

TEST_CASE("a whole prompt with its logits computes nothing and saves nothing", "[engine][S3]") {
    Rig<ToyStateEngine> rig;
    const Tokens prompt = some(16);
    (void)rig.generate(prompt);
    const auto before = rig.engine.computed;
    CHECK(rig.generate(prompt, 1).tokens == uncached_answer(prompt, 1));
    CHECK(rig.engine.computed == before);
    CHECK(rig.engine.saves == 1);
    // One that ends inside a stored sequence has no logits: its last token runs.
    CHECK(rig.generate(first(prompt, 9), 1).tokens == uncached_answer(first(prompt, 9), 1));
    CHECK(rig.engine.computed == before + 1);
}

TEST_CASE("no row is written twice and none is read out twice", "[engine]") {
    Rig<ToyRowEngine> rig;
    for (const std::size_t length : {16u, 16u, 13u, 19u, 19u, 3u, 40u, 32u}) {
        const Tokens prompt = some(length);
        const auto computed = rig.engine.computed;
        const auto written = rig.engine.rows_written;
        const auto result = rig.generate(prompt, 2);
        CHECK(rig.engine.rows_written - written == result.reused_tokens);
        CHECK(rig.engine.rows_written - written + rig.engine.computed - computed == length + 1);
    }
    CHECK(rig.engine.rows_read == rig.cached.stats().stored_blocks * page);
}

TEST_CASE("a paged engine that cannot copy rows copies nothing, and one that can a page at most",
          "[engine][M8]") {
    Rig<ToyCopyingPagedEngine> rig;
    (void)rig.generate(some(12));
    CHECK(rig.engine.rows_copied == 0);
    (void)rig.generate(with(first(some(12), 10), {1, 2, 3}));
    CHECK(rig.engine.rows_copied == 2);
}

TEMPLATE_TEST_CASE("the answer is stored too, but not its last token, which has no row",
                   "[engine][P1]", EVERY_FORM) {
    Rig<TestType> rig;
    const Tokens prompt = some(10);
    const auto first_turn = rig.generate(prompt, 7);  // 16 rows
    const Tokens said = with(prompt, first_turn.tokens);
    const auto before = rig.engine.computed;
    const auto second_turn = rig.generate(with(said, {5, 6}), 3);
    CHECK(second_turn.reused_tokens == 16);
    CHECK(rig.engine.computed - before == 3 + 2);
    CHECK(second_turn.tokens == uncached_answer(with(said, {5, 6}), 3));
}

TEMPLATE_TEST_CASE("a hundred prompts with shared prefixes in a cache too small for them are right",
                   "[engine][X1]", EVERY_FORM) {
    std::vector<Tokens> prompts;
    std::mt19937 random(5);
    const std::vector<Tokens> trunks{some(3 * page + 1, 1), some(3 * page + 1, 2)};
    for (std::size_t i = 0; i < 100; ++i) {
        const std::size_t shared = i % (3 * page + 2);
        prompts.push_back(with(first(trunks[i % 2], shared), some(random() % 6, i + 10)));
    }
    std::shuffle(prompts.begin(), prompts.end(), random);
    Rig<TestType> rig(6);
    for (const Tokens& prompt : prompts) {
        const kvstem::reference::SamplingParams sampling{
            .temperature = prompt.size() % 2 == 0 ? 0.0f : 0.8f, .seed = prompt.size()};
        const auto result =
            rig.cached.generate(prompt, {.max_new_tokens = 5, .sampling = sampling});
        CHECK(result.tokens == uncached_answer(prompt, 5, sampling));
        CHECK(rig.cached.stats().blocks <= 6);
        check_audit(rig.cached);
    }
    CHECK(rig.cached.stats().evicted_blocks > 0);
    CHECK(rig.cached.stats().reused_tokens > 0);
}

TEMPLATE_TEST_CASE("namespaces never share, and one can be dropped", "[engine][M7]", EVERY_FORM) {
    Rig<TestType> rig;
    const Tokens prompt = some(13);
    const auto reused = [&](const Namespace& name) {
        return rig.cached.generate(prompt, {.max_new_tokens = 0, .key_namespace = name})
            .reused_tokens;
    };
    const Namespace a{.salt = "a"};
    CHECK(reused({}) == 0);
    CHECK(reused(a) == 0);
    CHECK(reused({.adapter = "a"}) == 0);
    CHECK(reused(a) != 0);
    CHECK(rig.cached.drop(a) != 0);
    CHECK(rig.cached.peek(prompt, a) == 0);
    CHECK(reused(a) == 0);
    CHECK(reused({}) != 0);
    check_audit(rig.cached);
}

// ── One call ──

TEMPLATE_TEST_CASE("an empty prompt has an empty answer and leaves nothing", "[engine][M6]",
                   EVERY_FORM) {
    Rig<TestType> rig;
    const auto result = rig.generate({}, 5);
    CHECK(result.tokens.empty());
    CHECK(result.finish == FinishReason::empty_prompt);
    CHECK(rig.engine.steps == 0);
    CHECK(rig.cached.stats().misses == 0);
    CHECK(rig.cached.peek({}) == 0);
}

TEMPLATE_TEST_CASE("a call says why it ended", "[engine]", EVERY_FORM) {
    Rig<TestType> rig;
    const Tokens prompt = some(9);
    const Tokens answer = uncached_answer(prompt, 8);
    CHECK(rig.generate(prompt, 0).finish == FinishReason::length);
    CHECK(rig.generate(prompt, 0).tokens.empty());
    CHECK(rig.generate(prompt, 3).finish == FinishReason::length);
    CHECK(rig.generate(prompt, 3).tokens == first(answer, 3));

    const auto stop = std::find(answer.begin(), answer.end(), answer[4]) - answer.begin();
    const auto stopped =
        rig.cached.generate(prompt, {.max_new_tokens = 8, .stop_tokens = {answer[4], 4000}});
    CHECK(stopped.finish == FinishReason::stop_token);
    CHECK(stopped.tokens == first(answer, static_cast<std::size_t>(stop) + 1));

    rig.engine.context = 12;
    const auto full = rig.generate(prompt, 8);
    CHECK(full.finish == FinishReason::context_full);
    CHECK(full.tokens == first(answer, 4));  // positions 9, 10, 11 have rows; the fourth has none
    const auto brim = rig.generate(with(prompt, first(answer, 3)), 8);
    CHECK(brim.finish == FinishReason::context_full);
    CHECK(brim.tokens.size() == 1);
}

TEMPLATE_TEST_CASE("the callback hears every token in order and can end the answer", "[engine]",
                   EVERY_FORM) {
    Rig<TestType> rig;
    const Tokens prompt = some(9);
    const Tokens answer = uncached_answer(prompt, 8);
    Tokens heard;
    const auto result = rig.cached.generate(prompt, {.max_new_tokens = 8}, [&](Token token) {
        heard.push_back(token);
        return heard.size() < 3;
    });
    CHECK(heard == first(answer, 3));
    CHECK(result.tokens == heard);
    CHECK(result.finish == FinishReason::stopped);
    CHECK(result.computed_tokens == 9 + 2);
    heard.clear();
    (void)rig.cached.generate(prompt, {.max_new_tokens = 8},
                              [&](Token token) { heard.push_back(token); });
    CHECK(heard == answer);
}

TEMPLATE_TEST_CASE("sampling parameters are of one call and leave no trace", "[engine]",
                   EVERY_FORM) {
    Rig<TestType> rig;
    const Tokens prompt = some(9);
    const kvstem::reference::SamplingParams seeded{.temperature = 1.5f, .top_k = 20, .seed = 11};
    const Tokens drawn = uncached_answer(prompt, 8, seeded);
    CHECK(drawn != uncached_answer(prompt, 8));
    for (int turn = 0; turn < 3; ++turn) {
        CHECK(rig.cached.generate(prompt, {.max_new_tokens = 8, .sampling = seeded}).tokens ==
              drawn);
        CHECK(rig.generate(prompt, 8).tokens == uncached_answer(prompt, 8));
    }
    const auto ignore = [](Token) {};
    const auto last = [](std::span<const float> logits) {
        return static_cast<Token>(logits.size() - 1);
    };
    CHECK(rig.cached.generate(prompt, {.max_new_tokens = 3}, ignore, last).tokens ==
          Tokens{39, 39, 39});
}

TEMPLATE_TEST_CASE("the counters add up, and clear_cache keeps them", "[engine][C1][S9]",
                   EVERY_FORM) {
    Rig<TestType> rig;
    CHECK(rig.cached.stats().hit_rate() == 0.0);
    const Tokens prompt = some(16);
    const auto cold = rig.generate(prompt, 3);
    CHECK(rig.cached.stats().hits == 0);
    CHECK(rig.cached.stats().misses == 1);
    const auto warm = rig.generate(with(prompt, {1}), 3);
    auto stats = rig.cached.stats();
    CHECK(stats.hits == 1);
    CHECK(stats.misses == 1);
    CHECK(stats.queried_tokens == 33);
    CHECK(stats.reused_tokens == 16);
    CHECK(stats.missed_tokens == 17);
    CHECK(stats.computed_tokens == rig.engine.computed);
    CHECK(stats.computed_tokens == cold.computed_tokens + warm.computed_tokens);
    CHECK(stats.hit_rate() == 16.0 / 33.0);
    CHECK(stats.blocks != 0);
    CHECK(stats.capacity_blocks == 64);
    if (rig.cached.form != EngineForm::state) {
        CHECK(stats.bytes == stats.blocks * page * sizeof(Row));
    } else {
        CHECK(stats.bytes > stats.blocks * 16 * sizeof(Row));
    }
    rig.cached.clear_cache();
    const auto cleared = rig.cached.stats();
    CHECK(cleared.blocks == 0);
    CHECK(cleared.bytes == 0);
    CHECK(cleared.queried_tokens == 33);
    CHECK(cleared.stored_blocks == stats.stored_blocks);
    CHECK(rig.generate(prompt).reused_tokens == 0);
    check_audit(rig.cached);
}

TEMPLATE_TEST_CASE("who clears the cache during a call finds nothing of that call", "[engine][L5]",
                   EVERY_FORM) {
    Rig<TestType> rig;
    const Tokens prompt = some(16);
    const auto result = rig.cached.generate(prompt, {.max_new_tokens = 10}, [&](Token) {
        rig.cached.clear_cache();
        return true;
    });
    CHECK(result.tokens == uncached_answer(prompt, 10));
    CHECK(rig.cached.peek(prompt) == 0);
    CHECK(rig.cached.stats().blocks == 0);
    check_audit(rig.cached);
}

// ── Little room ──

TEST_CASE("a paged engine without a page for the next row ends the answer", "[engine][L4]") {
    Rig<ToyCopyingPagedEngine> rig(3);
    const Tokens prompt = some(9);
    const auto result = rig.generate(prompt, 20);
    CHECK(result.finish == FinishReason::out_of_pages);
    CHECK(result.tokens == uncached_answer(prompt, 4));  // rows at 9, 10, 11
    CHECK(rig.cached.stats().blocks == 3);
    check_audit(rig.cached);
    CHECK(rig.generate(some(9, 2), 2).tokens == uncached_answer(some(9, 2), 2));
}

TEST_CASE("an engine that owns its KV goes on where the cache is full", "[engine]") {
    for (const std::size_t blocks : {1u, 2u, 3u}) {
        Rig<ToyRowEngine> rig(blocks);
        const Tokens prompt = some(18);
        for (int turn = 0; turn < 3; ++turn) {
            const auto result = rig.generate(prompt, 30);
            CHECK(result.tokens == uncached_answer(prompt, 30));
            CHECK(result.finish == FinishReason::length);
            CHECK(result.reused_tokens == (turn == 0 ? 0 : blocks * page));
            CHECK(rig.cached.stats().blocks == blocks);
            check_audit(rig.cached);
        }
        CHECK(rig.cached.stats().evicted_blocks == 0);  // it never made room for itself
        (void)rig.generate(some(18, 2));
        CHECK(rig.cached.peek(prompt) == 0);
    }
}

TEST_CASE("a lookup evicts nothing: a prompt that is not stored leaves a full cache as it is",
          "[engine][E5]") {
    Rig<ToyRowEngine> rig(2);
    (void)rig.generate(some(8));
    (void)rig.generate(some(3, 2));
    CHECK(rig.cached.stats().evicted_blocks == 0);
    CHECK(rig.cached.peek(some(9)) == 8);
}

TEST_CASE("the prefix used last stays", "[engine][E2]") {
    Rig<ToyRowEngine> rig(2);
    (void)rig.generate(some(4, 1));
    (void)rig.generate(some(4, 2));
    (void)rig.generate(
        some(4, 1));  // cached to its end: nothing new is stored, and yet it was used
    (void)rig.generate(some(4, 3));
    CHECK(rig.cached.peek(with(some(4, 1), {0})) == 4);
    CHECK(rig.cached.peek(with(some(4, 2), {0})) == 0);
}

TEST_CASE("a snapshot larger than the cache is not stored, and the answer is right",
          "[engine][S7]") {
    ToyStateEngine engine;
    PrefixCachedEngine cached(engine, {.max_snapshots = 4, .max_bytes = 64});
    CHECK(cached.generate(some(30), {.max_new_tokens = 4}).tokens == uncached_answer(some(30), 4));
    CHECK(cached.stats().blocks == 0);
}

// ── States that cannot be cut ──

TEST_CASE("a state that cannot be cut serves what continues it and nothing else", "[engine][S6]") {
    Rig<ToyStateEngine> rig;
    rig.engine.cuts = ToyStateEngine::Cuts::nowhere;
    const Tokens ten = some(10);
    const Tokens six = first(ten, 6);
    (void)rig.generate(six);
    (void)rig.generate(ten);
    CHECK(rig.engine.loads == 1);
    const auto refusals = rig.engine.refusals;
    const Tokens branch = with(first(ten, 8), {39, 38});
    const auto result = rig.generate(branch, 3);
    CHECK(result.reused_tokens == 6);  // the older one, which ends before the branching
    CHECK(result.tokens == uncached_answer(branch, 3));
    CHECK(rig.engine.refusals == refusals + 1);
    // Each state refuses once, and is not asked again for that length or a shorter one: here the
    // two that the call before stored, then the one that this call stores.
    CHECK(rig.generate(with(first(ten, 8), {37})).reused_tokens == 6);
    CHECK(rig.engine.refusals == refusals + 3);
    CHECK(rig.generate(with(first(ten, 7), {36})).reused_tokens == 6);
    CHECK(rig.engine.refusals == refusals + 4);
    // A prompt that ends inside has nothing: its last token would have to run.
    CHECK(rig.generate(first(ten, 3), 2).reused_tokens == 0);
    CHECK(rig.generate(ten, 4).reused_tokens == 10);
    CHECK(rig.generate(ten, 4).tokens == uncached_answer(ten, 4));
    check_audit(rig.cached);
}

TEST_CASE(
    "a state whose window has slid serves near its end, and what branches before from an older one",
    "[engine][S6][C30]") {
    Rig<ToyStateEngine> rig;
    rig.engine.cuts = ToyStateEngine::Cuts::last_four;
    const Tokens all = some(20);
    (void)rig.generate(all);
    CHECK(rig.generate(with(first(all, 18), {1})).reused_tokens == 18);
    CHECK(rig.generate(with(first(all, 9), {1})).reused_tokens == 0);
    CHECK(rig.generate(with(first(all, 17), {2}), 2).tokens ==
          uncached_answer(with(first(all, 17), {2}), 2));
    (void)rig.generate(first(all, 7));
    CHECK(rig.generate(with(first(all, 9), {2})).reused_tokens == 9);  // of the second call above
}

// ── Refusals ──

TEMPLATE_TEST_CASE("each refusal names the value and leaves the cache as it was", "[engine][E5]",
                   EVERY_FORM) {
    Rig<TestType> rig(8);
    const std::vector<Tokens> known{some(13), with(first(some(13), 6), some(6, 2))};
    for (const Tokens& prompt : known) (void)rig.generate(prompt);
    const auto before = look(rig.cached, known);
    const auto refused = [&](const Tokens& prompt, const GenerateParams& params) {
        return refusal<InvalidArgument>([&] { (void)rig.cached.generate(prompt, params); });
    };
    CHECK_THAT(refused(some(401), {}), ContainsSubstring("401") && ContainsSubstring("400"));
    CHECK_THAT(refused(with(known[0], {40}), {}), ContainsSubstring("40 at position 13"));
    CHECK_THAT(refused(with(known[0], {-1}), {}), ContainsSubstring("-1"));
    CHECK_THAT(refused(known[0], {.sampling = {.temperature = -2.0f}}), ContainsSubstring("-2"));
    if (rig.cached.form == EngineForm::paged) {
        CHECK_THAT(refused(some(33), {}), ContainsSubstring("33") && ContainsSubstring("8 pages"));
    }
    rig.engine.logits_off = 3;
    CHECK_THAT(refused(with(known[0], {1}), {}),
               ContainsSubstring("37") && ContainsSubstring("40"));
    rig.engine.logits_off = 0;
    rig.engine.logits_are_nan = true;
    const auto nan_before = rig.cached.stats();
    CHECK_THAT(refused(with(known[0], {1, 2, 3, 4, 5}), {}), ContainsSubstring("nan"));
    rig.engine.logits_are_nan = false;
    CHECK(rig.cached.stats().stored_blocks == nan_before.stored_blocks);
    check_audit(rig.cached);
    // The last one was a query: its prompt had been computed. Nothing else has changed.
    auto after = look(rig.cached, known);
    std::copy_n(before.begin(), 5, after.begin());
    CHECK(after == before);
}

TEMPLATE_TEST_CASE("a sampler that leaves the vocabulary is refused, and nothing is stored",
                   "[engine]", EVERY_FORM) {
    Rig<TestType> rig;
    const auto ignore = [](Token) {};
    for (const Token wrong : {Token{40}, Token{-1}}) {
        const auto draw = [wrong](std::span<const float>) { return wrong; };
        CHECK_THAT(
            refusal<InvalidArgument>([&] { (void)rig.cached.generate(some(9), {}, ignore, draw); }),
            ContainsSubstring(std::to_string(wrong)));
    }
    CHECK(rig.cached.stats().blocks == 0);
    check_audit(rig.cached);
}

TEST_CASE(
    "a read-back that disagrees with the engine's shape is refused, and the cache is as it was",
    "[engine]") {
    Rig<ToyRowEngine> rig(3);
    const std::vector<Tokens> known{some(12)};
    (void)rig.generate(known[0]);
    const auto before = look(rig.cached, known);
    rig.engine.extra_bytes_read = 5;
    Tokens heard;
    const auto message = refusal<InvalidArgument>([&] {
        (void)rig.cached.generate(some(9, 2), {}, [&](Token token) { heard.push_back(token); });
    });
    CHECK_THAT(message, ContainsSubstring("37") && ContainsSubstring("32"));
    CHECK(heard.empty());
    auto after = look(rig.cached, known);
    std::copy_n(before.begin(), 5, after.begin());  // its prompt was computed, and counts
    CHECK(after == before);
    rig.engine.extra_bytes_read = 0;
    CHECK(rig.generate(some(9, 2), 4).tokens == uncached_answer(some(9, 2), 4));
}

TEST_CASE("a cache too small for one block is refused at once", "[engine]") {
    ToyRowEngine row;
    const auto refused = [](auto& engine, auto options) {
        return refusal<InvalidArgument>([&] { PrefixCachedEngine cached(engine, options); });
    };
    using kvstem::RowEngineOptions;
    using kvstem::StateEngineOptions;
    CHECK_THAT(refused(row, RowEngineOptions{.block_tokens = 4, .max_bytes = 31}),
               ContainsSubstring("31 bytes") && ContainsSubstring("32 bytes"));
    CHECK_THAT(refused(row, RowEngineOptions{.max_blocks = 0}), ContainsSubstring("0 blocks"));
    CHECK_THAT(refused(row, RowEngineOptions{.block_tokens = 0}), ContainsSubstring("0 tokens"));
    CHECK_THAT(refused(row, RowEngineOptions{.block_tokens = kvstem::unlimited / 4}),
               ContainsSubstring("tokens"));
    ToyStateEngine state;
    CHECK_THAT(refused(state, StateEngineOptions{.max_snapshots = 0}),
               ContainsSubstring("0 snapshots"));
    CHECK_THAT(refused(state, StateEngineOptions{.max_bytes = 0}), ContainsSubstring("0 bytes"));
    ToyPagedEngine no_pages(0, 4);
    CHECK_THAT(refused(no_pages, kvstem::PagedEngineOptions{}), ContainsSubstring("0 pages"));
    ToyPagedEngine pages_of_nothing(8, 0);
    CHECK_THAT(refused(pages_of_nothing, kvstem::PagedEngineOptions{}),
               ContainsSubstring("8 pages of 0 tokens"));
    PrefixCachedEngine just(row, {.block_tokens = 4, .max_bytes = 32});
    CHECK(just.stats().capacity_blocks == 1);
}

TEMPLATE_TEST_CASE("a call from within the callback is refused, and the outer one goes on",
                   "[engine]", EVERY_FORM) {
    Rig<TestType> rig;
    std::string message;
    const auto result = rig.cached.generate(some(9), {.max_new_tokens = 3}, [&](Token) {
        message = refusal<InvalidArgument>([&] { (void)rig.generate(some(5)); });
    });
    CHECK_THAT(message, ContainsSubstring("callback"));
    CHECK(result.tokens == uncached_answer(some(9), 3));
}

// ── An engine that fails ──

TEMPLATE_TEST_CASE("an engine that fails at any step leaks nothing, and the next call works",
                   "[engine][P6]", EVERY_FORM) {
    const Tokens trunk = some(18);
    const Tokens prompt = with(first(trunk, 14), some(9, 2));
    const Tokens answer = uncached_answer(prompt, 6);
    std::size_t failed = 0;
    for (std::uint64_t at = 1;; ++at) {
        INFO(at);
        Rig<TestType> rig(9);
        (void)rig.generate(trunk);
        const auto before = look(rig.cached, {trunk, prompt});
        rig.engine.fail_at_step = rig.engine.steps + at;
        Tokens heard;
        bool threw = false;
        try {
            (void)rig.cached.generate(prompt, {.max_new_tokens = 6},
                                      [&](Token token) { heard.push_back(token); });
        } catch (const EngineFailed&) {
            threw = true;
        }
        if (!threw) break;
        ++failed;
        check_audit(rig.cached);
        if (heard.empty()) {
            // Nothing of the prompt is there that was not before; only a query may have been
            // counted.
            auto after = look(rig.cached, {trunk, prompt});
            std::copy_n(before.begin(), 5, after.begin());
            CHECK(after == before);
        } else {
            CHECK(rig.cached.peek(prompt) >= prompt.size() / page * page - page);
            CHECK(rig.cached.peek(with(prompt, answer)) <= prompt.size());
        }
        CHECK(heard == first(answer, heard.size()));
        rig.engine.fail_at_step = 0;
        CHECK(rig.generate(prompt, 6).tokens == answer);
        CHECK(rig.generate(trunk, 6).tokens == uncached_answer(trunk, 6));
        check_audit(rig.cached);
    }
    CHECK(failed > 20);
}

TEMPLATE_TEST_CASE("a callback that throws passes through, and the prompt is kept", "[engine][P6]",
                   EVERY_FORM) {
    Rig<TestType> rig;
    const Tokens prompt = some(12);
    for (std::size_t at = 1; at <= 5; ++at) {
        std::size_t heard = 0;
        CHECK_THROWS_AS(rig.cached.generate(prompt, {.max_new_tokens = 9},
                                            [&](Token) {
                                                if (++heard == at) throw EngineFailed();
                                            }),
                        EngineFailed);
        check_audit(rig.cached);
        CHECK(rig.cached.peek(with(prompt, {1})) == 12);
        CHECK(rig.cached.peek(with(prompt, uncached_answer(prompt, 9))) == 12);
    }
    CHECK(rig.generate(prompt, 9).tokens == uncached_answer(prompt, 9));
}
