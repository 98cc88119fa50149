// SPDX-License-Identifier: MIT
// The property that matters most of PrefixCache: what continues from restored state is, bit for
// bit, what a run from scratch gives, wherever the stored sequence is cut.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "catch.hpp"
#include "kvstem/prefix_cache.hpp"
#include "kvstem/reference/checkpoint.hpp"
#include "kvstem/reference/decoder.hpp"
#include "kvstem/reference/kv.hpp"
#include "kvstem/reference/presets.hpp"
#include "support/reference.hpp"
#include "support/test_data.hpp"

using namespace kvstem;
using namespace kvstem::reference;
using support::same_bits;
using support::some_tokens;

namespace {

using Cache = PrefixCache<ContiguousKv>;
using Tokens = std::vector<Token>;

struct Run {
    ContiguousKv kv;
    std::vector<float> logits;  // after the last token
};

Run from_scratch(Decoder& decoder, const Tokens& tokens) {
    Run run{ContiguousKv(decoder.config().kv_shape()), {}};
    const Logits logits = decoder.forward_batch(tokens, 0, run.kv);
    run.logits.assign(logits.last().begin(), logits.last().end());
    return run;
}

/// Continues from what the cache hands out, and computes nothing else.
Run warm(Decoder& decoder, Cache::Hit hit, const Tokens& tokens) {
    Run run{std::move(hit.kv), {}};
    const auto rest = std::span(tokens).subspan(run.kv.length());
    const auto before = decoder.tokens_computed();
    const Logits logits = decoder.forward_batch(rest, run.kv.length(), run.kv);
    REQUIRE(decoder.tokens_computed() - before == rest.size());
    run.logits.assign(logits.last().begin(), logits.last().end());
    return run;
}

void check_every_cut(const std::shared_ptr<const Model>& model, std::size_t length) {
    Decoder decoder(model);
    const std::size_t vocab = model->config().vocab_size;
    const Tokens stored = some_tokens(length, vocab, 11);
    const Run whole = from_scratch(decoder, stored);
    Cache cache;
    cache.store(stored, whole.kv, whole.logits);
    for (std::size_t cut = 1; cut <= length; ++cut) {
        // A prompt that leaves the stored sequence after `cut` tokens, by a token that differs.
        Tokens prompt(stored.begin(), stored.begin() + static_cast<std::ptrdiff_t>(cut));
        const Token next = cut < length ? stored[cut] : 0;
        prompt.push_back(static_cast<Token>((next + 1) % static_cast<Token>(vocab)));
        prompt.push_back(stored[0]);
        const Run cold = from_scratch(decoder, prompt);

        auto hit = cache.acquire(prompt);
        REQUIRE(hit);
        REQUIRE(hit->tokens == cut);
        REQUIRE(hit->kv.length() == cut);
        REQUIRE(hit->logits.has_value() == (cut == length));
        if (hit->logits) REQUIRE(same_bits(*hit->logits, whole.logits));
        const Run run = warm(decoder, std::move(*hit), prompt);
        REQUIRE(same_bits(run.logits, cold.logits));
        REQUIRE(run.kv == cold.kv);
    }
    CHECK(cache.audit().ok());
    // The stored snapshot is none the worse for having been cut so often.
    auto taken = cache.take(stored);
    REQUIRE(taken);
    CHECK(taken->moved);
    CHECK(taken->kv == whole.kv);
}

}  // namespace

TEST_CASE("continuing from restored state is a run from scratch, at every cut, on every preset",
          "[S2][S3][X1]") {
    for (const auto& preset : presets::tiny()) {
        INFO(preset.name);
        check_every_cut(std::make_shared<Model>(Model::from_seed(preset.config, 3)), 40);
    }
}

TEST_CASE("continuing from restored state is a run from scratch, at every cut, on a trained model",
          "[S2][S3][X1]") {
    const auto path = support::test_data("models/stories260K.bin");
    if (!path) KVSTEM_SKIP(support::no_test_data);
    check_every_cut(std::make_shared<Model>(load_checkpoint(*path)), 48);
}

TEST_CASE("a conversation carried by take and store has the bits of one from scratch", "[S8][X1]") {
    const auto config = GENERATE(presets::llama_tiny(), presets::glm_moe_tiny());
    Decoder decoder(std::make_shared<Model>(Model::from_seed(config, 5)));
    Cache cache;
    Tokens text = some_tokens(9, config.vocab_size, 1);
    for (std::size_t turn = 0; turn < 6; ++turn) {
        const Run cold = from_scratch(decoder, text);
        Run run = cold;
        if (auto hit = cache.take(text)) {
            CHECK(hit->moved);
            run = warm(decoder, std::move(*hit), text);
            CHECK(same_bits(run.logits, cold.logits));
            CHECK(run.kv == cold.kv);
        } else {
            CHECK(turn == 0);
        }
        cache.store(text, std::move(run.kv), run.logits);
        CHECK(cache.size() == 1);
        const Tokens more = some_tokens(3 + turn, config.vocab_size, 20 + turn);
        text.insert(text.end(), more.begin(), more.end());
    }
}
