// SPDX-License-Identifier: MIT
// What a replay counts, on traces that can be followed by hand.

#include <cstddef>
#include <string>

#include "catch.hpp"
#include "kvstem/policy/hazard.hpp"
#include "kvstem/policy/lru.hpp"
#include "kvstem/policy/offline.hpp"
#include "kvstem/replay/replay.hpp"
#include "support/traces.hpp"

using namespace kvstem_test;
using kvstem::KnownFuture;
using kvstem::LeastRecentlyUsed;
using kvstem::OfflineOptimum;
using kvstem::replay::Replay;
using kvstem::replay::ReplayCounts;
using kvstem::replay::ReplayResult;
using kvstem::replay::WorkingPages;

namespace {
ReplayResult lru(const Trace& trace, std::size_t capacity,
                 WorkingPages working_pages = WorkingPages::in_cache) {
    return Replay<LeastRecentlyUsed>(trace, {capacity, working_pages}).run();
}
}  // namespace

TEST_CASE("a replay counts the leading blocks that are there before a request") {
    const Trace trace = trace_of(
        "{\"hash_ids\":[1,2,3],\"input_length\":1100}\n"
        "{\"hash_ids\":[1,2,4],\"input_length\":1536}\n"
        "{\"hash_ids\":[1,2,3],\"input_length\":1100}\n"
        "{\"hash_ids\":[1,2,3],\"input_length\":1100}\n");
    const ReplayResult result = lru(trace, 3);
    CHECK(result.whole.requests == 4);
    CHECK(result.whole.blocks == 12);
    CHECK(result.whole.hit_blocks == 0 + 2 + 2 + 3);
    CHECK(result.whole.evicted_blocks == 2);
    CHECK(result.whole.tokens == 1100 * 3 + 1536);
    CHECK(result.whole.hit_tokens == 0 + 1024 + 1024 + 1100);  // the last block is partial
    CHECK(result.second_half.requests == 2);
    CHECK(result.second_half.hit_blocks == 5);
    CHECK(result.second_half.evicted_blocks == 1);
    CHECK(result.second_half.hit_tokens == 2124);
    CHECK(result.second_half.block_hit_rate() == 5.0 / 6);
}

TEST_CASE("of a path longer than the capacity the first blocks that fit stay") {
    const Trace trace = trace_of("{\"hash_ids\":[1,2,3,4,5]}\n{\"hash_ids\":[1,2,3,4,5]}\n");
    CHECK(lru(trace, 3).whole.hit_blocks == 3);
    CHECK(lru(trace, 3).whole.evicted_blocks == 0);
    CHECK(lru(trace, 3, WorkingPages::separate).whole.hit_blocks == 3);
    CHECK(lru(trace, 3, WorkingPages::separate).whole.evicted_blocks == 2 + 2);
}

TEST_CASE("a cache without room hits nothing") {
    const Trace trace = trace_of("{\"hash_ids\":[1]}\n{\"hash_ids\":[1]}\n{\"hash_ids\":[]}\n");
    CHECK(lru(trace, 0).whole.hit_blocks == 0);
    CHECK(lru(trace, 0, WorkingPages::separate).whole.hit_blocks == 0);
    CHECK(lru(trace, 1).whole.hit_blocks == 1);
    const Trace nothing = trace_of("");
    CHECK(lru(nothing, 10).whole.requests == 0);
    CHECK(lru(nothing, 10).whole.block_hit_rate() == 0.0);
}

TEST_CASE("the odd request of a trace belongs to its second half") {
    const Trace trace = trace_of("{\"hash_ids\":[1]}\n{\"hash_ids\":[1]}\n{\"hash_ids\":[1]}\n");
    CHECK(lru(trace, 9).second_half.requests == 2);
    CHECK(lru(trace, 9).second_half.hit_blocks == 2);
}

TEST_CASE("progress is told after every request") {
    const Trace trace = random_trace(3, 57);
    int told = 0;
    Replay<LeastRecentlyUsed>(trace, {.capacity_blocks = 20}).run([&] { ++told; });
    CHECK(told == 57);
}

TEST_CASE("a replay ends with a cache in order, its tokens add up, and twice gives the same",
          "[C1]") {
    const Trace trace = random_trace(5, 400);
    Replay<kvstem::Hazard> first(trace, {.capacity_blocks = 70});
    Replay<kvstem::Hazard> second(trace, {.capacity_blocks = 70});
    const ReplayCounts counts = first.run().whole;
    CHECK(counts.hit_blocks == second.run().whole.hit_blocks);
    CHECK(first.cache().audit().ok());
    const auto stats = first.cache().stats();
    CHECK(stats.hit_tokens + stats.missed_tokens == stats.queried_tokens);
    CHECK(stats.hit_tokens == counts.hit_blocks);
    CHECK(stats.queried_tokens == counts.blocks + counts.requests);  // one more token each
    CHECK(stats.cached_pages <= 70);
}

TEST_CASE("nothing hits more than the offline optimum, and freedom not to insert helps it",
          "[E6]") {
    for (unsigned seed = 0; seed < 8; ++seed) {
        const Trace trace = random_trace(seed, 300);
        const KnownFuture future(trace.requests.size(), trace.distinct_blocks,
                                 [&](std::size_t i) { return trace.path(trace.requests[i]); });
        for (const std::size_t capacity : {30u, 80u, 150u}) {
            INFO("seed " << seed << ", capacity " << capacity);
            const auto optimum = [&](WorkingPages working_pages) {
                return Replay<OfflineOptimum>(trace, {capacity, working_pages},
                                              OfflineOptimum(future))
                    .run()
                    .whole.hit_blocks;
            };
            const auto forced = optimum(WorkingPages::in_cache);
            CHECK(forced <= optimum(WorkingPages::separate));
            CHECK(lru(trace, capacity).whole.hit_blocks <= forced);
            CHECK(Replay<kvstem::Hazard>(trace, {capacity}).run().whole.hit_blocks <= forced);
        }
    }
}
