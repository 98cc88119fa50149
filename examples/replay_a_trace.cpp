// SPDX-License-Identifier: MIT
// Replaying a trace in code: what would a cache of this size, with this policy, have hit? Reads the
// file it is given, or makes traffic up. `examples/run replay` is the tool that does much more.

#include <cstddef>
#include <cstdio>
#include <fstream>

#include "kvstem/errors.hpp"
#include "kvstem/policy/hazard.hpp"
#include "kvstem/policy/lru.hpp"
#include "kvstem/replay/replay.hpp"
#include "kvstem/replay/trace.hpp"
#include "support/made_up_trace.hpp"

namespace {

// Every request goes through a real RadixCache with its own pool and leases, one after the other.
template <class Policy>
double hit_rate(const kvstem::replay::Trace& trace, std::size_t capacity_blocks) {
    kvstem::replay::Replay<Policy> replay(trace, {.capacity_blocks = capacity_blocks});
    const kvstem::replay::ReplayResult result = replay.run();
    return 100 * result.second_half.token_hit_rate();  // the first half fills the cache
}

kvstem::replay::Trace load(const char* file_name) {
    std::ifstream file(file_name);
    if (!file) kvstem::detail::fail<kvstem::BadFormat>("cannot read %s", file_name);
    return kvstem::replay::TraceReader().read(file);  // a line: {"hash_ids": [0, 1, 2]}
}

}  // namespace

int main(int argc, char** argv) try {
    const auto trace = argc > 1 ? load(argv[1]) : support::read_trace(support::chats_and_jobs());
    std::printf("%zu requests, %zu distinct blocks of %zu tokens\n", trace.requests.size(),
                trace.distinct_blocks, trace.block_tokens);
    std::printf("token hit rate in the second half, by capacity in blocks\n");
    std::printf("%9s %10s %10s\n", "", "LRU", "hazard");
    double lru = 0;
    for (const std::size_t share : {100u, 50u, 20u, 10u, 5u, 1u}) {
        const std::size_t capacity = trace.distinct_blocks / share;
        lru = hit_rate<kvstem::LeastRecentlyUsed>(trace, capacity);
        std::printf("%9zu %8.1f %% %8.1f %%\n", capacity, lru,
                    hit_rate<kvstem::Hazard>(trace, capacity));
    }
    std::printf("with room for everything the policies agree, at %.1f %%\n", lru);
    return 0;
} catch (const kvstem::BadFormat& error) {
    std::fprintf(stderr, "replay_a_trace: %s\n", error.what());
    return 2;
}
