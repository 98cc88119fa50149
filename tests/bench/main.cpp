// SPDX-License-Identifier: MIT
// The benchmark's command line; `tests/run bench` builds and calls it.
//
// Yardsticks, measured beside every figure in the same alternation:
//   floor   the C library comparing the tokens that a lookup has to compare
//   L       one dependent load from memory, see Latency
// A ratio to them holds on any machine, where a time would not.

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <string>
#include <vector>

#include "bench.hpp"

namespace {

using bench::Bench;

constexpr const char* usage =
    "usage: kvstem_bench [--check] [--json FILE] [--quick] [--only ID]\n"
    "  --check       exit with 1 when a target is missed\n"
    "  --json FILE   write the table as JSON too\n"
    "  --quick       a tenth of every workload; the targets are meant for the whole\n"
    "  --only ID     one workload, by the name in the first column\n";

struct Options {
    bool check = false;
    std::string json;
};

/// False if the command line makes no sense.
bool read(int argc, char** argv, Options& options, Bench& bench) {
    for (int i = 1; i < argc; ++i) {
        const std::string argument = argv[i];
        if (argument == "--check") {
            options.check = true;
        } else if (argument == "--quick") {
            bench.quick = true;
        } else if (argument == "--json" && i + 1 < argc) {
            options.json = argv[++i];
        } else if (argument == "--only" && i + 1 < argc) {
            bench.only = argv[++i];
        } else {
            return false;
        }
    }
    return true;
}

std::string processor() {
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);) {
        if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
    }
    return "unknown processor";
}

#ifdef __clang__
constexpr const char* compiler = "clang " __clang_version__;
#else
constexpr const char* compiler = "g++ " __VERSION__;
#endif

}  // namespace

int main(int argc, char** argv) try {
    Bench bench;
    Options options;
    if (!read(argc, argv, options, bench)) {
        std::fputs(usage, stderr);
        return 2;
    }
    std::vector<bench::Seconds> latencies;
    for (int i = 0; i < 9; ++i) latencies.push_back(bench.latency.measure());
    const double latency_ns = bench::median(latencies) * 1e9;
    std::printf("%s, %s%s; L = %.1f ns\n\n", processor().c_str(), compiler,
                bench.quick ? ", a tenth of every workload" : "", latency_ns);
    bench.report.heading();

    bench::long_rows(bench);
    bench::wide_rows(bench);
    bench::churn_rows(bench);
    bench::chat_rows(bench);
    bench::memory_rows(bench);
    bench::snapshot_rows(bench);
    bench::model_rows(bench);
    bench::replay_rows(bench);
    bench::naive_rows(bench);

    if (bench.report.empty()) {
        std::fprintf(stderr, "there is no workload '%s'\n", bench.only.c_str());
        return 2;
    }
    std::printf("\n%zu of %zu targets missed\n", bench.report.missed(), bench.report.with_target());
    const std::string about = "\"processor\": \"" + processor() + "\", \"compiler\": \"" +
                              compiler + "\", \"quick\": " + (bench.quick ? "true" : "false") +
                              ", \"latency_ns\": " + std::to_string(latency_ns);
    if (!options.json.empty() && !bench.report.write_json(options.json, about)) {
        std::fprintf(stderr, "%s cannot be written\n", options.json.c_str());
        return 2;
    }
    return options.check && bench.report.missed() > 0 ? 1 : 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
}
