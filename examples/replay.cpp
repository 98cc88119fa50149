// SPDX-License-Identifier: MIT
// What would a prefix cache gain on my traffic? Replays a trace through RadixCache, policy by
// policy.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvstem/policy/fifo.hpp"
#include "kvstem/policy/hazard.hpp"
#include "kvstem/policy/length_aware.hpp"
#include "kvstem/policy/lfu.hpp"
#include "kvstem/policy/lfu_aging.hpp"
#include "kvstem/policy/lru.hpp"
#include "kvstem/policy/offline.hpp"
#include "kvstem/policy/priority.hpp"
#include "kvstem/policy/s3_fifo.hpp"
#include "kvstem/policy/slru.hpp"
#include "kvstem/reference/random.hpp"
#include "kvstem/replay/replay.hpp"
#include "kvstem/replay/trace.hpp"
#include "support/command_line.hpp"
#include "support/json.hpp"
#include "support/line_chart.hpp"
#include "support/terminal.hpp"

using namespace kvstem::replay;
using support::UsageError;

namespace {

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
std::vector<std::string> arguments_without_trace(int argc, char** argv, Options& options) {
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

/// Conversations that start, go on for a few turns and end, off a handful of system prompts.
std::string made_up_trace() {
    struct Conversation {
        std::vector<std::uint64_t> blocks;
    };
    kvstem::reference::SplitMix64 random(1);
    std::uint64_t next_block = 0;
    std::vector<Conversation> conversations;
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
            conversations.push_back({{system, system + 1, system + 2}});
        }
        std::vector<std::uint64_t>& blocks = conversations[which].blocks;
        const std::uint64_t added = 1 + random.next() % 12;
        for (std::uint64_t b = 0; b < added; ++b) blocks.push_back(next_block++);
        lines += fmt::format("{{\"input_length\": {}, \"hash_ids\": [{}]}}\n",
                             blocks.size() * 512 - random.next() % 512, fmt::join(blocks, ","));
    }
    return lines;
}

Trace load(const Options& options) {
    TraceReader reader({options.block_tokens, options.page_tokens,
                        options.skip_bad.empty() ? BadLines::refuse : BadLines::skip});
    if (options.trace.empty()) {
        std::istringstream lines(made_up_trace());
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

/// One line of the picture.
struct PolicyLook {
    std::string_view name;
    std::string_view legend;
    std::string_view colour;
    std::string_view dashes = "";
    double width = 1.6;
};

constexpr PolicyLook looks[] = {
    {"belady_bypass", "optimum with bypass", "#222222", "1 3"},
    {"belady", "optimum, no bypass", "#222222", "6 3"},
    {"hazard", "hazard", "#d55e00", "", 2.6},
    {"fifo", "FIFO", "#e69f00", "5 4"},  // over LRU, which it is close to
    {"lru", "LRU", "#0072b2", "", 2.4},
    {"lfu_aging", "LFU with ageing", "#009e73"},
    {"s3_fifo", "S3-FIFO", "#cc79a7"},
    {"slru", "SLRU", "#56b4e9"},
    {"lfu", "LFU", "#7a5195"},
    {"length_aware", "length-aware", "#8c6d31"},
};

/// Replays the trace with policies by their names.
class Replayer {
  public:
    Replayer(const Trace& trace, WorkingPages working_pages)
        : trace_(trace), working_pages_(working_pages) {}

    [[nodiscard]] ReplayResult run(std::string_view policy, std::size_t capacity,
                                   support::Progress& progress) {
        if (policy == "lru") return run<kvstem::LeastRecentlyUsed>(capacity, progress);
        if (policy == "fifo") return run<kvstem::FirstInFirstOut>(capacity, progress);
        if (policy == "lfu") return run<kvstem::LeastFrequentlyUsed>(capacity, progress);
        if (policy == "lfu_aging") return run<kvstem::FrequencyWithAgeing>(capacity, progress);
        if (policy == "slru") return run<kvstem::SegmentedLru>(capacity, progress);
        if (policy == "s3_fifo") return run<kvstem::S3Fifo>(capacity, progress);
        if (policy == "length_aware") return run<kvstem::LengthAware>(capacity, progress);
        if (policy == "priority") return run<kvstem::PriorityThenRecency<>>(capacity, progress);
        if (policy == "hazard") return run<kvstem::Hazard>(capacity, progress);
        const bool bypasses = policy == "belady_bypass";
        if (!bypasses && policy != "belady") {
            throw UsageError(fmt::format("there is no policy '{}'; --help lists them", policy));
        }
        return replay(capacity, progress, kvstem::OfflineOptimum(future()),
                      bypasses ? WorkingPages::separate : WorkingPages::in_cache);
    }

  private:
    template <class Policy>
    ReplayResult run(std::size_t capacity, support::Progress& progress) {
        return replay(capacity, progress, Policy{}, working_pages_);
    }
    template <class Policy>
    ReplayResult replay(std::size_t capacity, support::Progress& progress, Policy policy,
                        WorkingPages working_pages) {
        Replay<Policy> replay(trace_, {capacity, working_pages}, std::move(policy));
        return replay.run([&] { progress.step(); });
    }
    const kvstem::KnownFuture& future() {
        if (!future_) {
            future_.emplace(trace_.requests.size(), trace_.distinct_blocks,
                            [&](std::size_t i) { return trace_.path(trace_.requests[i]); });
        }
        return *future_;
    }

    const Trace& trace_;
    WorkingPages working_pages_;
    std::optional<kvstem::KnownFuture> future_;
};

std::vector<std::string> split(std::string_view list) {
    std::vector<std::string> parts;
    while (true) {
        const std::size_t comma = list.find(',');
        parts.emplace_back(list.substr(0, comma));
        if (comma == std::string_view::npos) return parts;
        list.remove_prefix(comma + 1);
    }
}

std::size_t capacity_of(const std::string& text, const Trace& trace) {
    if (text == "inf") return trace.distinct_blocks;
    std::size_t capacity = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, capacity);
    if (error != std::errc{} || stop != end) {
        throw UsageError(fmt::format("--capacity takes a number of blocks or inf, not '{}'", text));
    }
    return capacity;
}

/// Capacities from where one request fits to where nothing is evicted, in even steps of the
/// logarithm.
std::vector<std::size_t> ladder(const Trace& trace) {
    const std::size_t most = std::max<std::size_t>(trace.distinct_blocks, 1);
    const std::size_t least =
        std::clamp<std::size_t>(std::max(trace.longest_request_blocks(), most / 256), 1, most);
    std::vector<std::size_t> capacities;
    constexpr int steps = 12;
    for (int i = 0; i <= steps; ++i) {
        const double ratio = static_cast<double>(most) / static_cast<double>(least);
        const double exact = static_cast<double>(least) * std::pow(ratio, i / double{steps});
        const double unit = std::pow(10.0, std::max(std::floor(std::log10(exact)) - 1, 0.0));
        const auto rounded = static_cast<std::size_t>(std::round(exact / unit) * unit);
        const std::size_t capacity = i == steps ? most : std::min(rounded, most);
        if (capacities.empty() || capacity > capacities.back()) capacities.push_back(capacity);
    }
    return capacities;
}

std::string percent(double share) {
    return fmt::format("{:.2f} %", 100 * share);
}

void write_counts(support::JsonWriter& json, const ReplayCounts& counts) {
    json.value("requests", counts.requests);
    json.value("blocks", counts.blocks);
    json.value("hit_blocks", counts.hit_blocks);
    json.value("block_hit_rate", counts.block_hit_rate());
    json.value("token_hit_rate", counts.token_hit_rate());
    json.value("evicted_blocks", counts.evicted_blocks);
    json.value("seconds", counts.seconds);
}

void write_result(support::JsonWriter& json, std::string_view policy, std::size_t capacity,
                  const ReplayResult& result, std::string_view key = {}) {
    json.begin_object(key);
    json.value("policy", policy);
    json.value("capacity_blocks", capacity);
    write_counts(json, result.whole);
    json.begin_object("second_half");
    write_counts(json, result.second_half);
    json.end_object();
    json.end_object();
}

void print_trace(const Options& options, const Trace& trace) {
    const std::string name = options.trace.empty()
                                 ? "a made-up trace"
                                 : std::filesystem::path(options.trace).filename().string();
    fmt::print("{}: {} requests, {} blocks of {}, {} of them distinct\n\n", name,
               trace.requests.size(), trace.blocks.size(),
               support::counted(trace.block_tokens, "token"), trace.distinct_blocks);
}

int replay_once(const Options& options, const Trace& trace) {
    std::optional<support::OutputFile> json_file;
    if (!options.json.empty()) json_file.emplace(options.json);
    const std::string policy = options.policy.empty() ? "lru" : options.policy;
    const std::size_t capacity = options.capacity.empty()
                                     ? std::max<std::size_t>(trace.distinct_blocks / 10, 1)
                                     : capacity_of(options.capacity, trace);
    Replayer replayer(trace, options.working_pages());
    ReplayResult result;
    {
        support::Progress progress("requests", trace.requests.size());
        result = replayer.run(policy, capacity, progress);
    }
    print_trace(options, trace);
    fmt::print("{} with room for {}\n\n", policy, support::counted(capacity, "block"));
    support::Table table({"", "whole trace", "second half"}, 1);
    const auto row = [&](const char* name, auto figure) {
        table.row({name, figure(result.whole), figure(result.second_half)});
    };
    row("requests", [](const ReplayCounts& c) { return fmt::to_string(c.requests); });
    row("blocks", [](const ReplayCounts& c) { return fmt::to_string(c.blocks); });
    row("hit blocks", [](const ReplayCounts& c) { return fmt::to_string(c.hit_blocks); });
    row("block hit rate", [](const ReplayCounts& c) { return percent(c.block_hit_rate()); });
    row("token hit rate", [](const ReplayCounts& c) { return percent(c.token_hit_rate()); });
    row("evicted blocks", [](const ReplayCounts& c) { return fmt::to_string(c.evicted_blocks); });
    row("seconds", [](const ReplayCounts& c) { return fmt::format("{:.3f}", c.seconds); });
    table.print();
    if (json_file) {
        support::JsonWriter json;
        write_result(json, policy, capacity, result);
        json_file->write(json.text());
    }
    return 0;
}

/// Everything a curve is made of: results by policy, then by capacity.
struct Curve {
    std::vector<const PolicyLook*> policies;
    std::vector<std::size_t> capacities;
    std::vector<std::vector<ReplayResult>> results;
    ReplayResult ceiling;
};

Curve measure(const Options& options, const Trace& trace) {
    Curve curve;
    const std::vector<std::string> wanted = split(options.policy);
    for (const PolicyLook& look : looks) {
        const bool named = std::find(wanted.begin(), wanted.end(), look.name) != wanted.end();
        if (options.policy.empty() || named) curve.policies.push_back(&look);
    }
    if (!options.policy.empty() && curve.policies.size() != wanted.size()) {
        throw UsageError(fmt::format("there is no curve for some of '{}'", options.policy));
    }
    if (options.capacity.empty()) {
        curve.capacities = ladder(trace);
    } else {
        for (const std::string& each : split(options.capacity)) {
            curve.capacities.push_back(std::max<std::size_t>(capacity_of(each, trace), 1));
        }
        std::sort(curve.capacities.begin(), curve.capacities.end());
    }
    Replayer replayer(trace, options.working_pages());
    const std::size_t replays = curve.policies.size() * curve.capacities.size() + 1;
    support::Progress progress("requests", replays * trace.requests.size());
    curve.ceiling = replayer.run("lru", trace.distinct_blocks, progress);
    for (const PolicyLook* look : curve.policies) {
        auto& results = curve.results.emplace_back();
        for (const std::size_t capacity : curve.capacities) {
            results.push_back(replayer.run(look->name, capacity, progress));
        }
    }
    return curve;
}

std::string csv_of(const Curve& curve) {
    std::string csv =
        "policy,capacity_blocks,requests,blocks,hit_blocks,block_hit_rate,token_hit_rate,"
        "evicted_blocks,seconds\n";
    const auto line = [&](std::string_view policy, const std::string& capacity,
                          const ReplayCounts& c) {
        csv += fmt::format("{},{},{},{},{},{:.6f},{:.6f},{},{:.4f}\n", policy, capacity, c.requests,
                           c.blocks, c.hit_blocks, c.block_hit_rate(), c.token_hit_rate(),
                           c.evicted_blocks, c.seconds);
    };
    line("any", "inf", curve.ceiling.whole);
    for (std::size_t p = 0; p < curve.policies.size(); ++p) {
        for (std::size_t i = 0; i < curve.capacities.size(); ++i) {
            line(curve.policies[p]->name, fmt::to_string(curve.capacities[i]),
                 curve.results[p][i].whole);
        }
    }
    return csv;
}

std::string json_of(const Curve& curve) {
    support::JsonWriter json;
    json.begin_object();
    write_result(json, "any", curve.ceiling.whole.blocks, curve.ceiling, "infinite");
    json.begin_array("replays");
    for (std::size_t p = 0; p < curve.policies.size(); ++p) {
        for (std::size_t i = 0; i < curve.capacities.size(); ++i) {
            write_result(json, curve.policies[p]->name, curve.capacities[i], curve.results[p][i]);
        }
    }
    json.end_array();
    json.end_object();
    return json.text();
}

std::string svg_of(const Options& options, const Trace& trace, const Curve& curve) {
    support::LineChart chart;
    chart.title = options.trace.empty() ? "A made-up trace"
                                        : std::filesystem::path(options.trace).filename().string();
    chart.x_label =
        fmt::format("cache capacity (blocks of {})", support::counted(trace.block_tokens, "token"));
    chart.y_label = "block hit rate (%)";
    chart.ceiling = 100 * curve.ceiling.whole.block_hit_rate();
    chart.ceiling_name = "infinite cache";
    for (std::size_t p = 0; p < curve.policies.size(); ++p) {
        const PolicyLook& look = *curve.policies[p];
        support::ChartLine line{std::string(look.legend),
                                std::string(look.colour),
                                std::string(look.dashes),
                                look.width,
                                {}};
        for (std::size_t i = 0; i < curve.capacities.size(); ++i) {
            line.points.emplace_back(static_cast<double>(curve.capacities[i]),
                                     100 * curve.results[p][i].whole.block_hit_rate());
        }
        chart.lines.push_back(std::move(line));
    }
    return chart.svg();
}

int replay_curve(const Options& options, const Trace& trace) {
    const std::string csv_name =
        options.csv.empty()
            ? std::filesystem::path(options.curve).replace_extension(".csv").string()
            : options.csv;
    if (csv_name == options.curve) throw UsageError("--curve and the CSV are the same file");
    support::OutputFile svg(options.curve);
    support::OutputFile csv(csv_name);
    std::optional<support::OutputFile> json;
    if (!options.json.empty()) json.emplace(options.json);

    const Curve curve = measure(options, trace);
    print_trace(options, trace);
    std::vector<std::string> headings{"capacity"};
    for (const PolicyLook* look : curve.policies) headings.emplace_back(look->name);
    support::Table table(std::move(headings));
    for (std::size_t i = 0; i < curve.capacities.size(); ++i) {
        std::vector<std::string> cells{fmt::to_string(curve.capacities[i])};
        for (const auto& results : curve.results) {
            cells.push_back(fmt::format("{:.2f}", 100 * results[i].whole.block_hit_rate()));
        }
        table.row(std::move(cells));
    }
    table.print();
    fmt::print("\nblock hit rates in %; with an infinite cache {:.2f}\n",
               100 * curve.ceiling.whole.block_hit_rate());
    svg.write(svg_of(options, trace, curve));
    csv.write(csv_of(curve));
    if (json) json->write(json_of(curve));
    fmt::print("written: {} and {}\n", options.curve, csv_name);
    return 0;
}

int run(int argc, char** argv) {
    Options options;
    support::CommandLine line("replay [TRACE.jsonl]",
                              "Replays a trace of requests through RadixCache and says what it "
                              "would have hit. A trace has "
                              "one JSON object a line, with \"hash_ids\" (and \"input_length\") as "
                              "in Mooncake's traces, or "
                              "with \"tokens\". Without one, a made-up trace is replayed.");
    options.add_to(line);
    std::vector<std::string> arguments = arguments_without_trace(argc, argv, options);
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    if (!line.parse(static_cast<int>(pointers.size()), pointers.data())) return 0;
    const Trace trace = load(options);
    return options.curve.empty() ? replay_once(options, trace) : replay_curve(options, trace);
}

}  // namespace

int main(int argc, char** argv) {
    return support::run_example("replay", [&] { return run(argc, argv); });
}
