// SPDX-License-Identifier: MIT
// The two things the example `replay` does: one policy at one capacity, or a curve of all of them.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "json.hpp"
#include "line_chart.hpp"
#include "replay_options.hpp"
#include "replay_policies.hpp"
#include "terminal.hpp"

namespace support::replay {

inline std::string percent(double share) {
    return fmt::format("{:.2f} %", 100 * share);
}

inline void write_counts(support::JsonWriter& json, const ReplayCounts& counts) {
    json.value("requests", counts.requests);
    json.value("blocks", counts.blocks);
    json.value("hit_blocks", counts.hit_blocks);
    json.value("block_hit_rate", counts.block_hit_rate());
    json.value("token_hit_rate", counts.token_hit_rate());
    json.value("evicted_blocks", counts.evicted_blocks);
    json.value("seconds", counts.seconds);
}

inline void write_result(support::JsonWriter& json, std::string_view policy, std::size_t capacity,
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

inline void print_trace(const Options& options, const Trace& trace) {
    const std::string name = options.trace.empty()
                                 ? "a made-up trace"
                                 : std::filesystem::path(options.trace).filename().string();
    fmt::print("{}: {} requests, {} blocks of {}, {} of them distinct\n\n", name,
               trace.requests.size(), trace.blocks.size(),
               support::counted(trace.block_tokens, "token"), trace.distinct_blocks);
}

inline int replay_once(const Options& options, const Trace& trace) {
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

inline Curve measure(const Options& options, const Trace& trace) {
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

inline std::string csv_of(const Curve& curve) {
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

inline std::string json_of(const Curve& curve) {
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

inline std::string svg_of(const Options& options, const Trace& trace, const Curve& curve) {
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

inline int replay_curve(const Options& options, const Trace& trace) {
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

}  // namespace support::replay
