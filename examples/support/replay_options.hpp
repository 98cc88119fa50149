// SPDX-License-Identifier: MIT
// What the example `replay` is asked for, and the trace it reads.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "command_line.hpp"
#include "kvstem/errors.hpp"
#include "kvstem/replay/replay.hpp"
#include "kvstem/replay/trace.hpp"
#include "made_up_trace.hpp"
#include "terminal.hpp"

namespace support::replay {

using namespace kvstem::replay;

struct Options {
    std::string trace;
    std::string policy;  // one, or several with commas
    std::string capacity;
    std::string curve;
    std::string csv;
    std::string json;
    std::size_t block_tokens = 512;
    std::size_t page_tokens = 1;
    std::string skip_bad;
    std::string trim_own_path;

    void add_to(support::CommandLine& line) {
        line.text("--policy", "NAME", policy,
                  "the order of eviction: lru (default), fifo, lfu, lfu_aging, slru, s3_fifo, "
                  "length_aware, priority, hazard, or the offline optimum: belady, belady_bypass. "
                  "Several with commas");
        line.text("--capacity", "BLOCKS", capacity,
                  "how many blocks the cache holds, or inf (default: a tenth of the distinct "
                  "ones). Several with commas, for a curve");
        line.text("--curve", "FILE.svg", curve,
                  "replay every policy at a ladder of capacities; writes the picture and, beside "
                  "it, FILE.csv");
        line.text("--csv", "FILE", csv, "another name for the CSV");
        line.text("--json", "FILE", json, "write the figures as JSON");
        line.number("--block-tokens", "N", block_tokens, 1, std::size_t{1} << 30,
                    "tokens that one of a trace's hash_ids stands for");
        line.number("--page-tokens", "N", page_tokens, 1, std::size_t{1} << 30,
                    "tokens per block where a trace has the tokens themselves");
        line.text("--skip-bad", "", skip_bad, "leave out lines that cannot be read");
        line.text(
            "--trim-own-path", "", trim_own_path,
            "working pages are separate: a request's own blocks may go first, right after it");
    }
    [[nodiscard]] WorkingPages working_pages() const {
        return trim_own_path.empty() ? WorkingPages::in_cache : WorkingPages::separate;
    }
};

/// Takes the trace's name out of the arguments, and gives a value to the options that need none.
inline std::vector<std::string> arguments_without_trace(int argc, char** argv, Options& options) {
    std::vector<std::string> arguments(argv, argv + std::min(argc, 1));
    for (int i = 1; i < argc; ++i) {
        const std::string argument = argv[i];
        if (argument == "--skip-bad" || argument == "--trim-own-path") {
            arguments.push_back(argument + "=yes");
        } else if (!argument.empty() && argument[0] == '-') {
            arguments.push_back(argument);
            const bool alone =
                argument == "--help" || argument == "-h" || argument.find('=') != std::string::npos;
            if (!alone && i + 1 < argc) arguments.emplace_back(argv[++i]);
        } else if (options.trace.empty()) {
            options.trace = argument;
        } else {
            throw UsageError(
                fmt::format("one trace at a time: '{}' or '{}'?", options.trace, argument));
        }
    }
    return arguments;
}

inline Trace load(const Options& options) {
    TraceReader reader({options.block_tokens, options.page_tokens,
                        options.skip_bad.empty() ? BadLines::refuse : BadLines::skip});
    if (options.trace.empty()) {
        std::istringstream lines(support::conversations());
        return reader.read(lines);
    }
    std::ifstream file(options.trace);
    if (!file || std::filesystem::is_directory(options.trace)) {
        throw UsageError(fmt::format("cannot read trace '{}'", options.trace));
    }
    Trace trace;
    try {
        trace = reader.read(file);
    } catch (const kvstem::BadFormat& error) {
        throw UsageError(
            fmt::format("{}: {} (--skip-bad leaves such lines out)", options.trace, error.what()));
    }
    if (!trace.skipped_lines.empty()) {
        fmt::print(stderr, "replay: left out {}, the first is line {}\n",
                   support::counted(trace.skipped_lines.size(), "bad line"),
                   trace.skipped_lines.front());
    }
    if (trace.requests.empty()) {
        throw UsageError(fmt::format("there are no requests in '{}'", options.trace));
    }
    return trace;
}

}  // namespace support::replay
