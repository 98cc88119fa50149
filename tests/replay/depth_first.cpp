// SPDX-License-Identifier: MIT
// In depth-first order of the prefix tree LRU needs no more than the longest request to hit like an
// infinite cache (Zheng et al.: SGLang, 2024, theorem 3.1).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "catch.hpp"
#include "kvstem/policy/lru.hpp"
#include "kvstem/replay/replay.hpp"
#include "support/test_scale.hpp"
#include "support/traces.hpp"

using namespace kvstem_test;
using kvstem::LeastRecentlyUsed;
using kvstem::replay::Replay;
using kvstem::replay::TraceRequest;

namespace {

/// Paths in lexicographic order are the tree in depth-first order.
Trace depth_first(Trace trace) {
    std::stable_sort(trace.requests.begin(), trace.requests.end(),
                     [&](const TraceRequest& a, const TraceRequest& b) {
                         const auto x = trace.path(a);
                         const auto y = trace.path(b);
                         return std::lexicographical_compare(x.begin(), x.end(), y.begin(),
                                                             y.end());
                     });
    return trace;
}

std::uint64_t lru_hits(const Trace& trace, std::size_t capacity) {
    return Replay<LeastRecentlyUsed>(trace, {capacity}).run().whole.hit_blocks;
}

void check_theorem(const Trace& given) {
    const Trace trace = depth_first(given);
    const std::uint64_t infinite = lru_hits(trace, trace.distinct_blocks);
    // In any order, an infinite cache misses every distinct block once.
    CHECK(infinite == trace.blocks.size() - trace.distinct_blocks);
    const std::size_t longest = trace.longest_request_blocks();
    CHECK(lru_hits(trace, longest) == infinite);
    CHECK(lru_hits(trace, longest + 7) == infinite);
}

}  // namespace

TEST_CASE("in depth-first order LRU hits like an infinite cache on random trees", "[E2]") {
    for (unsigned seed = 0; seed < 20 * test_scale(); ++seed) {
        INFO("seed " << seed);
        check_theorem(random_trace(seed, 300));
    }
}

TEST_CASE("in depth-first order LRU hits like an infinite cache on real traces", "[E2]") {
    for (const char* name : {"arxiv_slice", "conversation"}) {
        const auto trace = real_trace(name);
        if (!trace) KVSTEM_SKIP(support::no_test_data);
        INFO(name);
        check_theorem(*trace);
    }
}

TEST_CASE("one page less than the longest request is not enough in general", "[E2]") {
    // a b c, then a b d: with room for two pages c never fits, and d takes nothing from a b.
    const Trace trace = trace_of("{\"hash_ids\":[1,2,3]}\n{\"hash_ids\":[1,2,3]}\n");
    CHECK(lru_hits(trace, 3) == 3);
    CHECK(lru_hits(trace, 2) == 2);
}
