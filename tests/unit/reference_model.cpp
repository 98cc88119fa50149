// SPDX-License-Identifier: MIT
// Configurations, presets and weights from a seed.

#include "kvstem/reference/model.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "support/reference.hpp"

using namespace kvstem;
using namespace kvstem::reference;
using support::refusal;

namespace {

/// FNV-1a over the bits of all weights, in the order of the walk.
std::uint64_t hash_of(const ModelConfig& config, const Weights& weights) {
    std::uint64_t hash = 0xCBF2'9CE4'8422'2325u;
    visit_weights(config, weights,
                  [&](const char*, const Tensor& tensor, std::size_t, std::size_t) {
                      for (const float weight : tensor) {
                          hash = (hash ^ std::bit_cast<std::uint32_t>(weight)) * 0x100'0000'01B3u;
                      }
                  });
    return hash;
}

/// What `validate` says about llama_tiny after one change.
template <class Change>
std::string refused(Change&& change) {
    ModelConfig config = presets::llama_tiny();
    change(config);
    return refusal<InvalidArgument>([&] { validate(config); });
}

}  // namespace

TEST_CASE("every preset is a valid configuration with a name of its own") {
    std::set<std::string> names;
    for (const Preset& preset : presets::all()) {
        INFO(preset.name);
        CHECK_NOTHROW(validate(preset.config));
        CHECK(names.insert(preset.name).second);
    }
    for (const Preset& preset : presets::tiny()) CHECK(names.count(preset.name) == 1);
}

TEST_CASE("the presets are the kinds of model they are named for") {
    CHECK(presets::qwen3_tiny().query_key_norm == QueryKeyNorm::per_head);
    CHECK(presets::qwen3_tiny().query_size() != presets::qwen3_tiny().dim);
    const ModelConfig glm = presets::glm_moe_tiny();
    CHECK(glm.n_heads == 4);
    CHECK(glm.n_kv_heads == 2);
    CHECK(glm.head_size == 4);
    CHECK(glm.n_experts == 6);
    CHECK(glm.n_active == 2);
    CHECK(glm.n_shared == 1);
    CHECK(presets::demo().max_context >= 2048);
}

TEST_CASE("only a model whose layers all slide by one window has a sliding window", "[W1]") {
    CHECK(presets::llama_tiny().sliding_window() == 0);
    CHECK(presets::windowed_tiny().sliding_window() == 8);
    CHECK(presets::mixed_window_tiny().sliding_window() == 0);
    ModelConfig config = presets::llama_tiny();
    config.windows = {0, 0};
    CHECK(config.sliding_window() == 0);
    config.windows = {5, 9};
    CHECK(config.sliding_window() == 0);
}

TEST_CASE("a layer with window W attends to the last W positions, its own included") {
    ModelConfig config = presets::llama_tiny();
    config.windows = {1, 4};
    CHECK(config.first_attended(0, 0) == 0);
    CHECK(config.first_attended(0, 7) == 7);
    CHECK(config.first_attended(1, 3) == 0);
    CHECK(config.first_attended(1, 4) == 1);
    CHECK(config.first_attended(1, 10) == 7);
    config.windows.clear();
    CHECK(config.first_attended(1, 10) == 0);
}

TEST_CASE("a configuration that does not fit together is refused by the value's name") {
    using C = ModelConfig;
    CHECK_THAT(refused([](C& c) { c.dim = 0; }), ContainsSubstring("dim is 0"));
    CHECK_THAT(refused([](C& c) { c.hidden_dim = 0; }), ContainsSubstring("hidden_dim is 0"));
    CHECK_THAT(refused([](C& c) { c.n_layers = 0; }), ContainsSubstring("n_layers is 0"));
    CHECK_THAT(refused([](C& c) { c.n_heads = 0; }), ContainsSubstring("n_heads is 0"));
    CHECK_THAT(refused([](C& c) { c.n_kv_heads = 5; }), ContainsSubstring("n_kv_heads is 5"));
    CHECK_THAT(refused([](C& c) { c.n_kv_heads = 3; }),
               ContainsSubstring("n_heads 4 is not a multiple of n_kv_heads 3"));
    CHECK_THAT(refused([](C& c) { c.head_size = 7; }), ContainsSubstring("head_size is 7"));
    CHECK_THAT(refused([](C& c) { c.head_size = 0; }), ContainsSubstring("head_size is 0"));
    CHECK_THAT(refused([](C& c) { c.vocab_size = 0; }), ContainsSubstring("vocab_size is 0"));
    CHECK_THAT(refused([](C& c) { c.vocab_size = std::size_t{1} << 31; }),
               ContainsSubstring("vocab_size is 2147483648"));
    CHECK_THAT(refused([](C& c) { c.max_context = 0; }), ContainsSubstring("max_context is 0"));
    CHECK_THAT(refused([](C& c) { c.rope_theta = 0.0f; }), ContainsSubstring("rope_theta is 0"));
    CHECK_THAT(refused([](C& c) { c.rope_theta = std::numeric_limits<float>::infinity(); }),
               ContainsSubstring("rope_theta is inf"));
    CHECK_THAT(refused([](C& c) { c.norm_eps = std::nanf(""); }),
               ContainsSubstring("norm_eps is nan"));
    CHECK_THAT(refused([](C& c) { c.windows = {8}; }),
               ContainsSubstring("windows has 1 entries for 2 layers"));
    CHECK_THAT(refused([](C& c) { c.n_active = 1; }),
               ContainsSubstring("n_active of a model without experts is 1"));
    CHECK_THAT(refused([](C& c) { c.n_shared = 1; }),
               ContainsSubstring("n_shared of a model without experts is 1"));
    CHECK_THAT(refused([](C& c) { c.n_experts = 6, c.expert_hidden_dim = 4; }),
               ContainsSubstring("n_active is 0"));
    CHECK_THAT(refused([](C& c) { c.n_experts = 2, c.n_active = 3, c.expert_hidden_dim = 4; }),
               ContainsSubstring("n_active is 3"));
    CHECK_THAT(refused([](C& c) { c.n_experts = 2, c.n_active = 1; }),
               ContainsSubstring("expert_hidden_dim is 0"));
}

// Expected values are those published with the generator's reference implementation.
TEST_CASE("the generator gives the published sequence") {
    SplitMix64 random(1234567);
    CHECK(random.next() == 6457827717110365317u);
    CHECK(random.next() == 3203168211198807973u);
    CHECK(random.next() == 9817491932198370423u);
    CHECK(random.next() == 4593380528125082431u);
    CHECK(random.next() == 16408922859458223821u);
}

TEST_CASE("units drawn from the generator keep to their ranges and fill them") {
    SplitMix64 random(1);
    float low = 1.0f;
    float high = -1.0f;
    double sum = 0.0;
    for (int i = 0; i < 10000; ++i) {
        const float signed_unit = random.signed_unit();
        low = std::min(low, signed_unit);
        high = std::max(high, signed_unit);
        const double unit = random.unit();
        REQUIRE((unit >= 0.0 && unit < 1.0));
        sum += unit;
    }
    CHECK((low >= -1.0f && low < -0.99f));
    CHECK((high < 1.0f && high > 0.99f));
    CHECK_THAT(sum / 10000, WithinAbs(0.5, 0.02));
}

TEST_CASE("weights from a seed have the same bits everywhere") {
    const auto hash = [](const ModelConfig& config) {
        return hash_of(config, weights_from_seed(config, 42));
    };
    CHECK(hash(presets::llama_tiny()) == 0x60C5'B6F2'5EAC'480Bu);
    CHECK(hash(presets::qwen3_tiny()) == 0xA44D'317B'A4FA'207Bu);
    CHECK(hash(presets::glm_moe_tiny()) == 0xA35A'8058'C28B'7A87u);
    CHECK(hash(presets::windowed_tiny()) == 0x60C5'B6F2'5EAC'480Bu);  // windows are no weights
    CHECK(hash(presets::mixed_window_tiny()) == 0x3B0E'F79F'53CB'FE69u);
    CHECK(hash(presets::demo()) == 0x06F8'46B1'BC5D'280Bu);
}

TEST_CASE("another seed gives other weights") {
    const ModelConfig config = presets::llama_tiny();
    const Weights one = weights_from_seed(config, 1);
    const Weights two = weights_from_seed(config, 2);
    CHECK(hash_of(config, one) == hash_of(config, weights_from_seed(config, 1)));
    CHECK(hash_of(config, one) != hash_of(config, two));
    CHECK(one.layers[0].wq != one.layers[1].wq);
}

TEST_CASE("seeded matrices are scaled to their width, norms lie around one") {
    const ModelConfig config = presets::glm_moe_tiny();
    const Weights weights = weights_from_seed(config, 3);
    visit_weights(config, weights,
                  [](const char* name, const Tensor& tensor, std::size_t out, std::size_t in) {
                      INFO(name);
                      REQUIRE(tensor.size() == (in == 0 ? out : out * in));
                      float largest = 0.0f;
                      for (const float w : tensor) {
                          largest = std::max(largest, std::fabs(in == 0 ? w - 1.0f : w));
                      }
                      const float ideal = std::sqrt(3.0f / static_cast<float>(in));
                      CHECK(largest <= (in == 0 ? 0.25f : 2.0f * ideal));
                      CHECK(largest >= (in == 0 ? 0.1f : 0.8f * ideal));
                  });
}

TEST_CASE("a model refuses weights that do not fit its configuration") {
    const ModelConfig config = presets::glm_moe_tiny();
    const auto refused_with = [&](auto&& damage) {
        Weights weights = weights_from_seed(config, 1);
        damage(weights);
        return refusal<InvalidArgument>([&] { Model(config, std::move(weights)); });
    };
    CHECK(refused_with([](Weights&) {}) == "not refused");
    CHECK_THAT(refused_with([](Weights& w) { w.layers[1].wk.pop_back(); }),
               ContainsSubstring("tensor wk has 159 elements, expected 160"));
    CHECK_THAT(refused_with([](Weights& w) { w.classifier.clear(); }),
               ContainsSubstring("tensor classifier has 0 elements"));
    CHECK_THAT(refused_with([](Weights& w) { w.layers.pop_back(); }),
               ContainsSubstring("weights for 1 layers, expected 2"));
    CHECK_THAT(refused_with([](Weights& w) { w.layers[0].experts.pop_back(); }),
               ContainsSubstring("5 experts, expected 6"));
    CHECK_THAT(refused_with([](Weights& w) { w.layers[0].shared.clear(); }),
               ContainsSubstring("0 shared experts, expected 1"));
}
