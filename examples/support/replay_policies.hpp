// SPDX-License-Identifier: MIT
// The policies of the example `replay` by their names, and the capacities it tries.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <optional>
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
#include "replay_options.hpp"
#include "terminal.hpp"

namespace support::replay {

/// One line of the picture.
struct PolicyLook {
    std::string_view name;
    std::string_view legend;
    std::string_view colour;
    std::string_view dashes = "";
    double width = 1.6;
};

inline constexpr PolicyLook looks[] = {
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

inline std::vector<std::string> split(std::string_view list) {
    std::vector<std::string> parts;
    while (true) {
        const std::size_t comma = list.find(',');
        parts.emplace_back(list.substr(0, comma));
        if (comma == std::string_view::npos) return parts;
        list.remove_prefix(comma + 1);
    }
}

inline std::size_t capacity_of(const std::string& text, const Trace& trace) {
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
inline std::vector<std::size_t> ladder(const Trace& trace) {
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

}  // namespace support::replay
