// SPDX-License-Identifier: MIT
// The decoder: right by the equations, and the same bits however the tokens are grouped.

#include "kvstem/reference/decoder.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "kvstem/reference/checkpoint.hpp"
#include "support/naive_model.hpp"
#include "support/reference.hpp"
#include "support/test_data.hpp"

using namespace kvstem;
using namespace kvstem::reference;
using support::refusal;
using support::same_bits;
using support::some_chunks;
using support::some_tokens;

namespace {

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

std::span<const Token> part(const std::vector<Token>& tokens, std::size_t from, std::size_t n) {
    return std::span<const Token>(tokens).subspan(from, n);
}

/// Computes the tokens in the given chunks and compares every row of logits and of KV with those
/// of one call.
void check_grouping(Decoder& decoder, const std::vector<Token>& tokens,
                    const std::vector<std::size_t>& chunks) {
    ContiguousKv whole(decoder.config().kv_shape());
    const Logits expected = decoder.forward_batch(tokens, 0, whole);
    ContiguousKv kv(decoder.config().kv_shape());
    std::size_t at = 0;
    for (const std::size_t n : chunks) {
        const Logits logits = decoder.forward_batch(part(tokens, at, n), at, kv);
        REQUIRE(logits.n_rows() == n);
        for (std::size_t i = 0; i < n; ++i) {
            REQUIRE(same_bits(logits.row(i), expected.row(at + i)));
        }
        at += n;
    }
    CHECK(kv == whole);
}

/// Runs several sequences of different ages in one step and compares each with being alone.
void check_company(Decoder& decoder, std::uint64_t seed) {
    const std::size_t vocab = decoder.config().vocab_size;
    std::vector<ContiguousKv> kvs;
    std::vector<std::vector<Token>> tokens;
    for (const std::size_t age : {17u, 1u, 30u, 5u}) {
        tokens.push_back(some_tokens(age + 6, vocab, seed + age));
        kvs.emplace_back(decoder.config().kv_shape());
        decoder.forward_batch(part(tokens.back(), 0, age), 0, kvs.back());
    }
    std::vector<ContiguousKv> alone = kvs;
    for (std::size_t step = 0; step < 6; ++step) {
        std::vector<BatchRow<ContiguousKv>> rows;
        for (std::size_t i = 0; i < kvs.size(); ++i) {
            const std::size_t who = (i + step) % kvs.size();
            if (who == step) continue;  // changing company
            const std::size_t at = kvs[who].length();
            rows.push_back({tokens[who][at], at, &kvs[who]});
        }
        const Logits together = decoder.forward_rows<ContiguousKv>(rows);
        REQUIRE(together.n_rows() == rows.size());
        for (std::size_t i = 0; i < rows.size(); ++i) {
            ContiguousKv& kv = alone[static_cast<std::size_t>(rows[i].kv - kvs.data())];
            const Logits single = decoder.forward_batch({&rows[i].token, 1}, kv.length(), kv);
            REQUIRE(same_bits(together.row(i), single.row(0)));
        }
    }
    CHECK(kvs == alone);
}

}  // namespace

TEST_CASE("logits are equal if their shape and all their bits are") {
    const Logits zeros(2, 3);
    CHECK(zeros == Logits(2, 3));
    CHECK_FALSE(zeros == Logits(3, 3));
    CHECK_FALSE(zeros == Logits(2, 4));
    CHECK(Logits(0, 3) == Logits(0, 3));
    Logits other(2, 3);
    other.values()[5] = -0.0f;
    CHECK_FALSE(zeros == other);
    other.values()[5] = std::numeric_limits<float>::quiet_NaN();
    CHECK(other == Logits(other));
}

TEST_CASE("the decoder computes what the equations say, on every preset") {
    for (const Preset& preset : presets::tiny()) {
        const auto model = std::make_shared<const Model>(Model::from_seed(preset.config, 11));
        Decoder decoder(model);
        const support::NaiveModel naive(*model);
        const auto tokens = some_tokens(20, preset.config.vocab_size, 3);
        ContiguousKv kv(preset.config.kv_shape());
        const Logits logits = decoder.forward_batch(tokens, 0, kv);
        for (const std::size_t n : {1u, 7u, 13u, 20u}) {
            const std::vector<double> expected = naive.logits(part(tokens, 0, n));
            for (std::size_t i = 0; i < expected.size(); ++i) {
                INFO(preset.name << ", logit " << i << " after " << n << " tokens");
                REQUIRE_THAT(logits.row(n - 1)[i], WithinAbs(expected[i], 1e-3));
            }
        }
    }
}

TEST_CASE("one call on n tokens and n calls on one give the same bits, on every preset", "[X1]") {
    for (const Preset& preset : presets::tiny()) {
        INFO(preset.name);
        Decoder decoder(Model::from_seed(preset.config, 1));
        const auto tokens = some_tokens(45, preset.config.vocab_size, 2);
        check_grouping(decoder, tokens, std::vector<std::size_t>(45, 1));
        for (std::uint64_t seed = 0; seed < 6; ++seed) {
            check_grouping(decoder, tokens, some_chunks(45, 5 + 6 * seed, seed));
        }
    }
}

TEST_CASE("the real model's bits do not depend on the grouping or the company", "[X1]") {
    const auto path = support::test_data("models/stories260K.bin");
    if (!path) KVSTEM_SKIP(support::no_test_data);
    Decoder decoder(load_checkpoint(*path));
    const auto tokens = some_tokens(50, decoder.config().vocab_size, 2);
    check_grouping(decoder, tokens, std::vector<std::size_t>(50, 1));
    check_grouping(decoder, tokens, some_chunks(50, 20, 1));
    check_company(decoder, 3);
}

TEST_CASE("rows batched in changing company have the bits of each alone, on every preset", "[X1]") {
    for (const Preset& preset : presets::tiny()) {
        INFO(preset.name);
        Decoder decoder(Model::from_seed(preset.config, 1));
        check_company(decoder, 7);
    }
}

TEST_CASE("chunks of prompts and decoding rows share a step without changing each other", "[X1]") {
    const ModelConfig config = presets::glm_moe_tiny();
    Decoder decoder(Model::from_seed(config, 1));
    const auto one = some_tokens(20, config.vocab_size, 1);
    const auto two = some_tokens(9, config.vocab_size, 2);
    ContiguousKv a(config.kv_shape());
    ContiguousKv b(config.kv_shape());
    decoder.forward_batch(part(one, 0, 4), 0, a);
    ContiguousKv alone_a = a;
    ContiguousKv alone_b = b;
    const std::vector<BatchRun<ContiguousKv>> runs{{part(one, 4, 16), 4, &a}, {two, 0, &b}};
    const std::span<const BatchRun<ContiguousKv>> span(runs);
    ContiguousKv last_a = a;
    ContiguousKv last_b = b;
    const std::vector<BatchRun<ContiguousKv>> copies{{part(one, 4, 16), 4, &last_a},
                                                     {two, 0, &last_b}};
    const Logits all = decoder.forward_runs(span, LogitsFor::every_token);
    const Logits last = decoder.forward_runs<ContiguousKv>(copies, LogitsFor::last_token);
    const Logits expected_a = decoder.forward_batch(part(one, 4, 16), 4, alone_a);
    const Logits expected_b = decoder.forward_batch(two, 0, alone_b);
    REQUIRE(all.n_rows() == 25);
    for (std::size_t i = 0; i < 16; ++i) CHECK(same_bits(all.row(i), expected_a.row(i)));
    for (std::size_t i = 0; i < 9; ++i) CHECK(same_bits(all.row(16 + i), expected_b.row(i)));
    REQUIRE(last.n_rows() == 2);
    CHECK(same_bits(last.row(0), expected_a.last()));
    CHECK(same_bits(last.row(1), expected_b.last()));
    CHECK(a == alone_a);
    CHECK(b == alone_b);
    CHECK(last_a == alone_a);
}

TEST_CASE("asking for the last row of logits changes neither it nor the KV") {
    const ModelConfig config = presets::qwen3_tiny();
    Decoder decoder(Model::from_seed(config, 1));
    const auto tokens = some_tokens(33, config.vocab_size, 1);
    ContiguousKv a(config.kv_shape());
    ContiguousKv b(config.kv_shape());
    const Logits all = decoder.forward_batch(tokens, 0, a);
    const Logits last = decoder.forward_batch(tokens, 0, b, LogitsFor::last_token);
    REQUIRE(last.n_rows() == 1);
    CHECK(same_bits(last.row(0), all.row(32)));
    CHECK(a == b);
}

TEST_CASE("continuing from any cut gives the bits of a run from scratch, on every preset",
          "[X1][S2]") {
    for (const Preset& preset : presets::tiny()) {
        Decoder decoder(Model::from_seed(preset.config, 4));
        const auto tokens = some_tokens(24, preset.config.vocab_size, 5);
        ContiguousKv whole(preset.config.kv_shape());
        const Logits cold = decoder.forward_batch(tokens, 0, whole);
        for (std::size_t cut = 0; cut < 24; ++cut) {
            INFO(preset.name << " cut at " << cut);
            ContiguousKv kv = whole.prefix(cut);
            const Logits warm = decoder.forward_batch(part(tokens, cut, 24 - cut), cut, kv);
            REQUIRE(same_bits(warm.last(), cold.last()));
            REQUIRE(kv == whole);
        }
    }
}

TEST_CASE("what lies behind a layer's window is never read", "[W1]") {
    for (const ModelConfig& config : {presets::windowed_tiny(), presets::mixed_window_tiny()}) {
        Decoder decoder(Model::from_seed(config, 4));
        const auto tokens = some_tokens(40, config.vocab_size, 5);
        ContiguousKv kv(config.kv_shape());
        decoder.forward_batch(part(tokens, 0, 30), 0, kv);
        // The oldest row that a computation at position 30 may touch, per layer.
        const auto needed = [&](std::size_t layer, std::size_t position) {
            return position >= config.first_attended(layer, 30);
        };
        ContiguousKv poisoned = support::copy_rows_where(kv, not_a_number, needed);
        REQUIRE(std::isnan(poisoned.key(0, 0)[0]));
        const Logits expected = decoder.forward_batch(part(tokens, 30, 10), 30, kv);
        const Logits logits = decoder.forward_batch(part(tokens, 30, 10), 30, poisoned);
        CHECK(logits == expected);

        // One row more, and it shows: the bound is exact.
        ContiguousKv spoilt = support::copy_rows_where(
            kv.prefix(30), not_a_number, [&](std::size_t layer, std::size_t position) {
                return position > config.first_attended(layer, 30);
            });
        const Logits wrong = decoder.forward_batch(part(tokens, 30, 1), 30, spoilt);
        CHECK(std::isnan(wrong.row(0)[0]));
    }
}

TEST_CASE("a window changes the answer from its width on, and not before", "[W1]") {
    const ModelConfig windowed = presets::windowed_tiny();
    ModelConfig full = windowed;
    full.windows.clear();
    Decoder one(Model::from_seed(windowed, 4));
    Decoder two(Model::from_seed(full, 4));
    const auto tokens = some_tokens(12, full.vocab_size, 5);
    ContiguousKv a(full.kv_shape());
    ContiguousKv b(full.kv_shape());
    const Logits x = one.forward_batch(tokens, 0, a);
    const Logits y = two.forward_batch(tokens, 0, b);
    for (std::size_t i = 0; i < 12; ++i) CHECK(same_bits(x.row(i), y.row(i)) == (i < 8));
}

TEST_CASE("a refused step names what is wrong and changes nothing", "[R1]") {
    const ModelConfig config = presets::llama_tiny();
    Decoder decoder(Model::from_seed(config, 1));
    ContiguousKv kv(config.kv_shape());
    decoder.forward_batch(some_tokens(10, config.vocab_size, 1), 0, kv);
    const ContiguousKv before = kv;
    const auto refused = [&](std::vector<Token> tokens, std::size_t position) {
        return refusal<InvalidArgument>([&] { decoder.forward_batch(tokens, position, kv); });
    };
    CHECK_THAT(refused({1}, 9), ContainsSubstring("start position 9, but the KV holds 10"));
    CHECK_THAT(refused({1}, 11), ContainsSubstring("start position 11, but the KV holds 10"));
    CHECK_THAT(refused({1, 2, 64}, 10), ContainsSubstring("token 64 is outside"));
    CHECK_THAT(refused({1, -1}, 10), ContainsSubstring("token -1 is outside the vocabulary of 64"));
    CHECK_THAT(refused({}, 10), ContainsSubstring("no tokens to compute at position 10"));
    CHECK_THAT(refused(std::vector<Token>(1015), 10),
               ContainsSubstring("1015 tokens from position 10 exceed the context of 1024"));
    ContiguousKv other(KvShape{2, 8});
    CHECK_THAT(
        refusal<InvalidArgument>([&] { decoder.forward_batch(some_tokens(1, 64, 1), 0, other); }),
        ContainsSubstring("KV of 2 layers of 8 floats, the model has 2 of 12"));
    CHECK(kv == before);
    CHECK(other.length() == 0);
    CHECK(decoder.tokens_computed() == 10);
}

TEST_CASE("one wrong row refuses the whole step, and no sequence has advanced", "[R1]") {
    const ModelConfig config = presets::llama_tiny();
    Decoder decoder(Model::from_seed(config, 1));
    ContiguousKv a(config.kv_shape());
    ContiguousKv b(config.kv_shape());
    using Rows = std::vector<BatchRow<ContiguousKv>>;
    const auto refused = [&](const Rows& rows) {
        return refusal<InvalidArgument>([&] { decoder.forward_rows<ContiguousKv>(rows); });
    };
    CHECK_THAT(refused({{1, 0, &a}, {99, 0, &b}}), ContainsSubstring("token 99"));
    CHECK_THAT(refused({{1, 0, &a}, {2, 1, &b}}), ContainsSubstring("start position 1"));
    CHECK_THAT(refused({{1, 0, &a}, {2, 1, &a}}), ContainsSubstring("one KV is in two"));
    CHECK_THAT(refused({{1, 0, &a}, {2, 0, nullptr}}), ContainsSubstring("without a KV"));
    CHECK_THAT(refused({}), ContainsSubstring("without tokens"));
    CHECK(a.length() == 0);
    CHECK(b.length() == 0);

    // The second sequence's table has no room: found only after the first made its slots.
    support::PagedSequence good(config.kv_shape(), 4, 4);
    support::PagedSequence full(config.kv_shape(), 4, 4);
    PagedKvView x = good.view();
    PagedKvView y = full.view();
    decoder.forward_batch(some_tokens(4, config.vocab_size, 1), 0, y);
    const std::vector<BatchRow<PagedKvView>> rows{{1, 0, &x}, {1, 4, &y}};
    CHECK_THAT(refusal<InvalidArgument>([&] { decoder.forward_rows<PagedKvView>(rows); }),
               ContainsSubstring("4 + 1 positions in a block table of 1 pages of 4"));
    CHECK(x.length() == 0);
    CHECK(decoder.tokens_computed() == 4);
}

TEST_CASE("the context may be filled to its last position") {
    ModelConfig config = presets::llama_tiny();
    config.max_context = 16;
    Decoder decoder(Model::from_seed(config, 1));
    ContiguousKv kv(config.kv_shape());
    decoder.forward_batch(some_tokens(16, config.vocab_size, 1), 0, kv);
    CHECK(kv.length() == 16);
    CHECK_THAT(
        refusal<InvalidArgument>([&] { decoder.forward_batch(some_tokens(1, 64, 1), 16, kv); }),
        ContainsSubstring("exceed the context of 16"));
}

TEST_CASE("the decoder counts the tokens it computed, over all sequences") {
    const ModelConfig config = presets::llama_tiny();
    Decoder decoder(Model::from_seed(config, 1));
    ContiguousKv a(config.kv_shape());
    ContiguousKv b(config.kv_shape());
    CHECK(decoder.tokens_computed() == 0);
    decoder.forward_batch(some_tokens(5, 64, 1), 0, a);
    const std::vector<BatchRow<ContiguousKv>> rows{{1, 5, &a}, {2, 0, &b}};
    decoder.forward_rows<ContiguousKv>(rows);
    CHECK(decoder.tokens_computed() == 7);
}

TEST_CASE("a decoder without a model is refused, and decoders can share one") {
    CHECK_THROWS_AS(Decoder(std::shared_ptr<const Model>()), InvalidArgument);
    const auto model = std::make_shared<const Model>(Model::from_seed(presets::llama_tiny(), 1));
    Decoder one(model);
    Decoder two(model);
    ContiguousKv a(model->config().kv_shape());
    ContiguousKv b = a;
    const auto tokens = some_tokens(4, 64, 1);
    CHECK(one.forward_batch(tokens, 0, a) == two.forward_batch(tokens, 0, b));
}

TEST_CASE("of experts with equal scores the lower index is chosen") {
    const auto chosen = [](std::vector<float> scores, std::size_t n) {
        std::vector<std::size_t> result(n);
        choose_experts(scores, result);
        return result;
    };
    using Experts = std::vector<std::size_t>;
    CHECK(chosen({1, 3, 2, 3}, 2) == Experts{1, 3});
    CHECK(chosen({3, 3, 3, 3}, 2) == Experts{0, 1});
    CHECK(chosen({0, 1, 1, 2}, 3) == Experts{3, 1, 2});
    CHECK(chosen({0.0f, -0.0f, 0.0f}, 1) == Experts{0});
    CHECK(chosen({2, 1, 0}, 3) == Experts{0, 1, 2});
}

TEST_CASE("a router that cannot decide runs the first experts, and only them") {
    const ModelConfig config = presets::glm_moe_tiny();
    Weights undecided = weights_from_seed(config, 1);
    for (LayerWeights& layer : undecided.layers) layer.router.assign(layer.router.size(), 0.0f);
    Weights others_spoilt = undecided;
    Weights second_spoilt = undecided;
    for (std::size_t e = 2; e < 6; ++e) {
        auto& w2 = others_spoilt.layers[0].experts[e].w2;
        w2.assign(w2.size(), not_a_number);
    }
    auto& w2 = second_spoilt.layers[0].experts[1].w2;
    w2.assign(w2.size(), not_a_number);
    const auto run = [&](Weights weights) {
        Decoder decoder(Model(config, std::move(weights)));
        ContiguousKv kv(config.kv_shape());
        return decoder.forward_batch(some_tokens(6, config.vocab_size, 1), 0, kv);
    };
    const Logits expected = run(std::move(undecided));
    CHECK(run(std::move(others_spoilt)) == expected);
    CHECK(std::isnan(run(std::move(second_spoilt)).row(0)[0]));
}

TEST_CASE("a row of logits that is not there is refused") {
    const Logits logits(2, 3);
    CHECK(logits.row(1).size() == 3);
    CHECK_THAT(refusal<InvalidArgument>([&] { (void)logits.row(2); }),
               ContainsSubstring("row 2 of 2"));
    CHECK_THROWS_AS(Logits(0, 3).last(), InvalidArgument);
}
