// SPDX-License-Identifier: MIT
// The row of the eviction policies: what one that learns costs beside least recently used.

#include <cstddef>
#include <optional>
#include <string>

#include "bench.hpp"
#include "kvstem/policy/hazard.hpp"
#include "kvstem/policy/lru.hpp"
#include "kvstem/replay/replay.hpp"
#include "support/traces.hpp"

namespace bench {
namespace {

using kvstem::Hazard;
using kvstem::LeastRecentlyUsed;

template <class Policy>
Seconds replay(const kvstem::replay::Trace& trace, std::size_t capacity) {
    return time([&] {
        kvstem::replay::Replay<Policy> run(trace, {.capacity_blocks = capacity});
        keep(run.run().whole.hit_blocks);
    });
}

}  // namespace

/// A replay drives the real cache, so the whole of it is compared: what both policies cost is on
/// both sides. The target is for the real trace at the capacities that its expected hits are given
/// for, taken together; without it (KVSTEM_TEST_DATA) a synthetic one shows about the same. Nothing
/// is scaled: a replay takes some 20 ms.
void replay_rows(Bench& bench) {
    if (!bench.wants({"replay"})) return;
    const auto real = kvstem_test::real_trace("conversation");
    const auto trace = real ? *real : kvstem_test::session_trace(kvstem_test::multi_turn, 1, 6000);
    const std::string name = real ? "hazard, " : "synthetic, hazard, ";
    double sum = 0;
    double lru = 0;
    for (const std::size_t capacity : {1'000u, 2'000u, 5'000u, 10'000u, 30'000u, 50'000u}) {
        const auto medians =
            alternate(bench.rounds(15), {[&] { return replay<LeastRecentlyUsed>(trace, capacity); },
                                         [&] { return replay<Hazard>(trace, capacity); }});
        bench.add({"replay", name + std::to_string(capacity) + " blocks", medians[1] * 1e3,
                   medians[0] * 1e3, "ms", "LRU"});
        sum += medians[1] * 1e3;
        lru += medians[0] * 1e3;
    }
    bench.add({"replay", name + "all of these", sum, lru, "ms", "LRU",
               real ? std::optional(3.0) : std::nullopt});
}

}  // namespace bench
