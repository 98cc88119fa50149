// SPDX-License-Identifier: MIT
// Traces for tests: the real ones, and random ones that branch and come back.
#pragma once

#include <cmath>
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

/// Requests that go on with, branch off or repeat one of so many before them; the last block is
/// partial now and then.
inline Trace random_trace(std::uint64_t seed, std::size_t requests, std::size_t reach = 60) {
    kvstem::reference::SplitMix64 random(seed);
    std::vector<std::vector<std::uint64_t>> paths;
    std::uint64_t next = 0;
    std::ostringstream lines;
    for (std::size_t i = 0; i < requests; ++i) {
        std::vector<std::uint64_t> path;
        if (!paths.empty() && random.next() % 5 != 0) {
            path = paths[paths.size() - 1 - random.next() % std::min(paths.size(), reach)];
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

/// What sessions of a synthetic trace are like. Blocks and requests are the units.
struct SessionKind {
    std::size_t shared_prompts;        // a session begins with one of so many
    std::size_t shared_blocks;         // of each
    std::size_t most_blocks_per_turn;  // that a turn adds
    std::size_t large_turn_one_in;     // turns that add ten times as many
    std::size_t abandoned_one_in;      // after a turn
    std::size_t burst_turns;           // that follow one another soon
    std::size_t sessions_at_once;      // how many take turns
    std::size_t pause_requests;        // between bursts, on average
    bool pauses_vary_little = false;   // none is longer than twice that; else exponential
};

/// An agent calls tools many times in quick succession, then nobody asks for long.
inline constexpr SessionKind agentic{6, 40, 4, 12, 25, 12, 8, 400};
/// People read and think between turns; most give up after a few.
inline constexpr SessionKind multi_turn{3, 4, 6, 20, 4, 1, 60, 120};
/// Long documents, each asked about a few times and never again.
inline constexpr SessionKind documents{1, 1, 2, 3, 6, 3, 30, 60};

/// Requests of sessions that come and go: each goes on with its session's path. The last block of
/// each request is partial half of the time.
inline Trace session_trace(const SessionKind& kind, std::uint64_t seed, std::size_t requests) {
    struct Session {
        std::vector<kvstem::Token> path{};
        std::size_t turns = 0;
        std::size_t due = 0;  // the request at which it goes on
    };
    kvstem::reference::SplitMix64 random(seed);
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random.next() % n); };
    Trace trace;
    trace.block_tokens = 512;
    const auto new_block = [&] { return static_cast<kvstem::Token>(trace.distinct_blocks++); };
    std::vector<std::vector<kvstem::Token>> prompts(kind.shared_prompts);
    for (auto& prompt : prompts) {
        for (std::size_t i = 0; i < kind.shared_blocks; ++i) prompt.push_back(new_block());
    }
    std::vector<Session> sessions(kind.sessions_at_once);
    while (trace.requests.size() < requests) {
        const std::size_t now = trace.requests.size();
        Session* next = &sessions[below(sessions.size())];
        for (Session& each : sessions) {
            if (each.due < next->due) next = &each;
        }
        Session& session = *next;
        if (session.path.empty()) session.path = prompts[below(prompts.size())];
        std::size_t more = 1 + below(kind.most_blocks_per_turn);
        if (below(kind.large_turn_one_in) == 0) more *= 10;
        for (; more > 0; --more) session.path.push_back(new_block());
        const bool is_partial = below(2) == 0;
        const std::size_t blocks = session.path.size();
        trace.requests.push_back(
            {trace.blocks.size(), blocks, blocks * 512 - (is_partial ? 100 : 0), 0});
        trace.blocks.insert(trace.blocks.end(), session.path.begin(), session.path.end());
        if (is_partial) session.path.pop_back();  // what the next turn makes of it is another block
        ++session.turns;
        const bool pauses = session.turns % kind.burst_turns == 0;
        const auto mean = static_cast<double>(kind.pause_requests);
        const auto exponential = static_cast<std::size_t>(-std::log(1 - random.unit()) * mean);
        const std::size_t pause =
            kind.pauses_vary_little ? below(2 * kind.pause_requests) : exponential;
        session.due = now + 1 + (pauses ? pause : below(4));
        if (below(kind.abandoned_one_in) == 0) session = {{}, 0, now + 1};
    }
    return trace;
}

}  // namespace kvstem_test
