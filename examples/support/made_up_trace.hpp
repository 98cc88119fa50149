// SPDX-License-Identifier: MIT
// Made-up traffic, for want of a trace of one's own. The same each time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "kvstem/reference/random.hpp"
#include "kvstem/replay/trace.hpp"

namespace support {

using Blocks = std::vector<std::uint64_t>;

/// A line of a trace: the blocks of a prompt, and one member more.
inline std::string trace_line(const Blocks& blocks, const char* member, std::uint64_t value) {
    std::string line = "{\"";
    line += member;
    line += "\": ";
    line += std::to_string(value);
    line += ", \"hash_ids\": [";
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        if (i > 0) line += ',';
        line += std::to_string(blocks[i]);
    }
    line += "]}\n";
    return line;
}

inline kvstem::replay::Trace read_trace(const std::string& text) {
    std::istringstream lines(text);
    return kvstem::replay::TraceReader().read(lines);
}

/// Conversations that start, go on for a few turns and end, off a handful of system prompts.
inline std::string conversations() {
    kvstem::reference::SplitMix64 random(1);
    std::uint64_t next_block = 0;
    std::vector<Blocks> conversations;
    std::string lines;
    for (int i = 0; i < 3000; ++i) {
        std::size_t which = conversations.size();
        if (which > 0 && random.unit() < 0.6) {
            // Most turns go on with a recent conversation, some with an old one.
            const auto back = static_cast<std::size_t>(
                std::min(1 / (random.unit() + 1e-9), static_cast<double>(which)));
            which -= std::max<std::size_t>(back, 1);
        } else {
            const std::uint64_t system = 1'000'000 + random.next() % 6 * 10;
            conversations.push_back({system, system + 1, system + 2});
        }
        Blocks& blocks = conversations[which];
        const std::uint64_t added = 1 + random.next() % 12;
        for (std::uint64_t b = 0; b < added; ++b) blocks.push_back(next_block++);
        lines += trace_line(blocks, "input_length", blocks.size() * 512 - random.next() % 512);
    }
    return lines;
}

/// Chats that go on for some turns (tag 0), between batch jobs with long prompts that nobody asks
/// twice (tag 1).
inline std::string chats_and_jobs() {
    kvstem::reference::SplitMix64 random(7);
    std::vector<Blocks> chats(40);
    std::string lines;
    std::uint64_t next_block = 0;
    for (int i = 0; i < 4000; ++i) {
        if (random.unit() < 0.5) {
            Blocks job(30);
            for (std::uint64_t& part : job) part = next_block++;
            lines += trace_line(job, "tag", 1);
            continue;
        }
        Blocks& chat = chats[random.next() % chats.size()];
        if (random.unit() < 0.1) chat.clear();  // another one begins
        for (int b = 0; b < 3; ++b) chat.push_back(next_block++);
        lines += trace_line(chat, "tag", 0);
    }
    return lines;
}

}  // namespace support
