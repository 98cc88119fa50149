// SPDX-License-Identifier: MIT
// Sampling: the likeliest token, or seeded draws whose shares follow the logits.

#include "kvstem/reference/sampler.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "catch.hpp"
#include "support/reference.hpp"

using namespace kvstem;
using namespace kvstem::reference;
using support::refusal;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

SamplingParams drawn(float temperature, std::size_t top_k = 0, float top_p = 1.0f,
                     std::uint64_t seed = 1) {
    return {temperature, top_k, top_p, seed};
}

/// How often each token comes in n draws.
std::vector<double> shares(const SamplingParams& params, const std::vector<float>& logits,
                           int n = 20000) {
    Sampler sampler(params);
    std::vector<double> counts(logits.size());
    for (int i = 0; i < n; ++i) counts[static_cast<std::size_t>(sampler.sample(logits))] += 1.0 / n;
    return counts;
}

}  // namespace

TEST_CASE("greedy sampling takes the largest logit, of equals the lowest id") {
    Sampler sampler{SamplingParams{}};
    CHECK(sampler.sample(std::vector<float>{1, 5, 2}) == 1);
    CHECK(sampler.sample(std::vector<float>{7, 5, 7}) == 0);
    CHECK(sampler.sample(std::vector<float>{-3, -infinity, -2}) == 2);
    CHECK(sampler.sample(std::vector<float>{-infinity, -1}) == 1);
}

TEST_CASE("draws follow the softmax of the logits") {
    const std::vector<float> logits{std::log(0.5f), std::log(0.3f), std::log(0.2f)};
    const auto plain = shares(drawn(1.0f), logits);
    CHECK_THAT(plain[0], WithinAbs(0.5, 0.02));
    CHECK_THAT(plain[1], WithinAbs(0.3, 0.02));
    CHECK_THAT(plain[2], WithinAbs(0.2, 0.02));
    // Temperature 1/2 squares the shares: 25 : 9 : 4.
    const auto cold = shares(drawn(0.5f), logits);
    CHECK_THAT(cold[0], WithinAbs(25.0 / 38, 0.02));
    CHECK_THAT(cold[1], WithinAbs(9.0 / 38, 0.02));
}

TEST_CASE("top-k keeps the k likeliest tokens, of equals the lower ids") {
    const std::vector<float> logits{1, 2, 2, 2, 0};
    const auto two = shares(drawn(1.0f, 2), logits, 2000);
    CHECK_THAT(two[1], WithinAbs(0.5, 0.05));
    CHECK_THAT(two[2], WithinAbs(0.5, 0.05));
    CHECK(two[0] + two[3] + two[4] == 0.0);
    CHECK(shares(drawn(1.0f, 1), logits, 100)[1] > 0.999);
    CHECK(shares(drawn(1.0f, 99), logits, 2000)[4] > 0.0);
}

TEST_CASE("top-p keeps the fewest likeliest tokens that reach the share") {
    const std::vector<float> logits{std::log(0.2f), std::log(0.5f), std::log(0.3f)};
    CHECK(shares(drawn(1.0f, 0, 0.4f), logits, 500)[1] > 0.999);
    const auto two = shares(drawn(1.0f, 0, 0.7f), logits);
    CHECK(two[0] == 0.0);
    CHECK_THAT(two[1], WithinAbs(5.0 / 8, 0.02));
    CHECK(shares(drawn(1.0f, 0, 0.99f), logits, 2000)[0] > 0.1);
    // Where the share is reached exactly, no other token is kept: two of four equal ones are a half.
    const auto half = shares(drawn(1.0f, 0, 0.5f), {1, 1, 1, 1}, 500);
    CHECK(half[2] + half[3] == 0.0);
    // The share is one of what top-k kept: 5/8 of two tokens is reached by the first.
    CHECK(shares(drawn(1.0f, 2, 0.6f), logits, 500)[1] > 0.999);
}

TEST_CASE("the same seed draws the same tokens, another seed others") {
    const std::vector<float> logits(50, 0.0f);
    const auto draw = [&](std::uint64_t seed) {
        Sampler sampler(drawn(1.0f, 0, 1.0f, seed));
        std::vector<Token> tokens;
        for (int i = 0; i < 30; ++i) tokens.push_back(sampler.sample(logits));
        return tokens;
    };
    CHECK(draw(1) == draw(1));
    CHECK(draw(1) != draw(2));
}

TEST_CASE("a sampler that is copied draws on from the same state") {
    const std::vector<float> logits(50, 0.0f);
    Sampler one(drawn(1.0f));
    (void)one.sample(logits);
    Sampler two = one;
    for (int i = 0; i < 20; ++i) CHECK(one.sample(logits) == two.sample(logits));
}

TEST_CASE("a token excluded by minus infinity is never drawn") {
    const auto counts = shares(drawn(100.0f), {-infinity, 1, -infinity, 1, -infinity}, 2000);
    CHECK(counts[0] + counts[2] + counts[4] == 0.0);
    CHECK(counts[1] > 0.4);
}

TEST_CASE("extreme temperatures draw the likeliest or anything, never nothing") {
    const std::vector<float> logits{0, 1e30f, -1e30f};
    CHECK(shares(drawn(std::numeric_limits<float>::denorm_min()), logits, 100)[1] > 0.999);
    const auto hot = shares(drawn(std::numeric_limits<float>::max()), logits);
    CHECK_THAT(hot[2], WithinAbs(1.0 / 3, 0.02));
}

TEST_CASE("sampling parameters out of range are refused by name") {
    const auto refused = [](const SamplingParams& params) {
        return refusal<InvalidArgument>([&] { Sampler sampler(params); });
    };
    CHECK(refused(drawn(0.7f, 3, 0.5f)) == "not refused");
    CHECK_THAT(refused(drawn(-1.0f)), ContainsSubstring("temperature is -1"));
    CHECK_THAT(refused(drawn(not_a_number)), ContainsSubstring("temperature is nan"));
    CHECK_THAT(refused(drawn(infinity)), ContainsSubstring("temperature is inf"));
    CHECK_THAT(refused(drawn(1.0f, 0, 0.0f)), ContainsSubstring("top_p is 0"));
    CHECK_THAT(refused(drawn(1.0f, 0, 1.5f)), ContainsSubstring("top_p is 1.5"));
    CHECK_THAT(refused(drawn(1.0f, 0, not_a_number)), ContainsSubstring("top_p is nan"));
}

TEST_CASE("logits nothing can be drawn from are refused and cost no randomness") {
    const std::vector<float> flat(50, 0.0f);
    for (const float temperature : {0.0f, 1.0f}) {
        Sampler sampler(drawn(temperature));
        Sampler untouched = sampler;
        const auto refused = [&](const std::vector<float>& logits) {
            return refusal<InvalidArgument>([&] { (void)sampler.sample(logits); });
        };
        CHECK_THAT(refused({0, not_a_number}), ContainsSubstring("logit 1 is nan"));
        CHECK_THAT(refused({not_a_number, 0}), ContainsSubstring("logit 0 is nan"));
        CHECK_THAT(refused({0, 1, infinity}), ContainsSubstring("logit 2 is inf"));
        CHECK_THAT(refused({}), ContainsSubstring("none of 0 tokens"));
        CHECK_THAT(refused({-infinity, -infinity}), ContainsSubstring("none of 2 tokens"));
        for (int i = 0; i < 10; ++i) CHECK(sampler.sample(flat) == untouched.sample(flat));
    }
}
