// SPDX-License-Identifier: MIT
// Traces for tests: the real ones, and random ones that branch and come back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "kvstem/reference/random.hpp"
#include "kvstem/replay/trace.hpp"
#include "support/test_data.hpp"

namespace kvstem_test {

using kvstem::replay::Trace;

inline Trace trace_of(const std::string& lines, kvstem::replay::TraceOptions options = {}) {
    std::istringstream in(lines);
    return kvstem::replay::TraceReader(options).read(in);
}

/// One of the real traces, "conversation" or "arxiv_slice"; nothing without KVSTEM_TEST_DATA.
inline std::optional<Trace> real_trace(const std::string& name) {
    const auto path =
        support::test_data(name == "conversation" ? "traces/conversation_trace.jsonl"
                                                  : "traces/mooncake_arxiv_trace_1000_slice.jsonl");
    if (!path) return std::nullopt;
    std::ifstream in(*path);
    if (!in) throw std::runtime_error("cannot read " + *path);
    return kvstem::replay::TraceReader().read(in);
}

/// Requests that go on with, branch off or repeat earlier ones; the last block is partial now and
/// then.
inline Trace random_trace(std::uint64_t seed, std::size_t requests) {
    kvstem::reference::SplitMix64 random(seed);
    std::vector<std::vector<std::uint64_t>> paths;
    std::uint64_t next = 0;
    std::ostringstream lines;
    for (std::size_t i = 0; i < requests; ++i) {
        std::vector<std::uint64_t> path;
        if (!paths.empty() && random.next() % 5 != 0) {
            path =
                paths[paths.size() - 1 - random.next() % std::min<std::size_t>(paths.size(), 60)];
            if (random.next() % 3 == 0) path.resize(random.next() % (path.size() + 1));
        }
        const std::uint64_t most = random.next() % 4 == 0 ? 20 : 4;
        for (std::uint64_t n = random.next() % most; n > 0; --n) path.push_back(next++);
        lines << "{\"hash_ids\":[";
        for (std::size_t b = 0; b < path.size(); ++b) lines << (b == 0 ? "" : ",") << path[b];
        const std::size_t missing = path.empty() || random.next() % 2 == 0 ? 0 : 100;
        lines << "],\"input_length\":" << path.size() * 512 - missing << "}\n";
        paths.push_back(path);
    }
    return trace_of(lines.str());
}

}  // namespace kvstem_test
