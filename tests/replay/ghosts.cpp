// SPDX-License-Identifier: MIT
// The estimate of what another capacity would hit, against replays with that capacity.

#include <array>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "catch.hpp"
#include "kvstem/ghost.hpp"
#include "kvstem/policy/lru.hpp"
#include "kvstem/replay/replay.hpp"
#include "support/test_scale.hpp"
#include "support/traces.hpp"

using namespace kvstem_test;
using kvstem::GhostCache;
using kvstem::GhostOptions;
using kvstem::LeastRecentlyUsed;
using kvstem::replay::Replay;

namespace {

std::array<double, 4> estimated(const Trace& trace, GhostOptions options) {
    GhostCache ghosts(options);
    for (const auto& request : trace.requests) ghosts.observe(trace.path(request));
    const auto rates = ghosts.rates();
    CHECK(rates.pages == trace.blocks.size());
    return {rates.half_capacity, rates.capacity, rates.twice_capacity, rates.four_times_capacity};
}

/// The largest distance of an estimate from its replay.
double worst(const Trace& trace, GhostOptions options) {
    const auto rates = estimated(trace, options);
    double worst = 0;
    for (std::size_t i = 0; i < rates.size(); ++i) {
        const std::size_t capacity = (options.capacity_pages << i) / 2;
        const double hit_rate =
            Replay<LeastRecentlyUsed>(trace, {capacity}).run().whole.block_hit_rate();
        worst = std::max(worst, std::abs(rates[i] - hit_rate));
    }
    return worst;
}

}  // namespace

TEST_CASE("with room for all ghosts the estimate is exact") {
    for (unsigned seed = 0; seed < 6 * test_scale(); ++seed) {
        const Trace trace = random_trace(seed, 300);
        for (const std::size_t capacity : {2u, 10u, 64u, 250u}) {
            INFO("seed " << seed << ", capacity " << capacity);
            CHECK(worst(trace, {.capacity_pages = capacity, .page_tokens = 1}) < 1e-12);
        }
    }
}

TEST_CASE("the estimate is within 2 percentage points of replays of real traces") {
    for (const char* name : {"arxiv_slice", "conversation"}) {
        const auto trace = real_trace(name);
        if (!trace) KVSTEM_SKIP(support::no_test_data);
        for (const std::size_t capacity : {500u, 2'500u, 5'000u, 10'000u, 25'000u}) {
            if (large_test_divisor > 1 && name[0] == 'c' && capacity != 5'000) continue;
            INFO(name << " with room for " << capacity);
            CHECK(worst(*trace, {.capacity_pages = capacity, .page_tokens = 1}) < 0.02);
            CHECK(worst(*trace, {.capacity_pages = capacity, .page_tokens = 1, .ghosts = 8192}) <
                  0.02);
        }
    }
}

TEST_CASE("ghosts of different namespaces are different pages", "[M7]") {
    GhostCache ghosts({.capacity_pages = 8, .page_tokens = 2});
    const std::vector<kvstem::Token> prompt{1, 2, 3, 4, 5};
    ghosts.observe(prompt);
    ghosts.observe(prompt, {.salt = "x"});
    CHECK(ghosts.rates().pages == 4);
    CHECK(ghosts.rates().four_times_capacity == 0.0);
    ghosts.observe(prompt);
    CHECK(ghosts.rates().capacity == 2.0 / 6);
}

TEST_CASE("ghosts take little memory and options without sense are refused") {
    const GhostCache ghosts({.capacity_pages = 1'000'000});
    CHECK(ghosts.bytes() < 1'000'000);
    CHECK(ghosts.rates().capacity == 0.0);
    CHECK_THROWS_AS(GhostCache({.capacity_pages = 1}), kvstem::InvalidArgument);
    CHECK_THROWS_AS(GhostCache({.capacity_pages = 9, .page_tokens = 0}), kvstem::InvalidArgument);
    CHECK_THROWS_AS(GhostCache({.capacity_pages = 9, .page_tokens = 1, .ghosts = 63}),
                    kvstem::InvalidArgument);
}
