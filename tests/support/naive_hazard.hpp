// SPDX-License-Identifier: MIT
// The hazard order as a simulation that looks at every block at every step: the oracle of the
// policy.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "kvstem/replay/trace.hpp"

namespace kvstem_test {

struct NaiveHazard {
    static constexpr std::size_t buckets = 24;
    static constexpr std::size_t classes = 65;
    using Table = std::array<std::array<double, buckets>, classes>;

    struct Block {
        std::uint64_t time = 0;
        std::size_t block_class = 0;
        std::size_t count = 0;
        std::size_t depth = 0;
        int parent = -1;
        bool resident = false;
        bool known = false;  // in the history
    };

    std::size_t capacity;
    std::size_t history_limit;
    std::map<int, Block> blocks{};
    Table reuses{};
    Table exposure{};
    Table worth{};
    std::uint64_t next_rebuild = 0;
    std::uint64_t hits = 0;
    std::uint64_t evicted = 0;

    static std::size_t bucket_of(std::uint64_t age) {
        std::size_t b = 0;
        while (b + 1 < buckets && age >= edge(b + 1)) ++b;
        return b;
    }
    static std::uint64_t edge(std::size_t b) { return b == 0 ? 0 : std::uint64_t{1} << (b - 1); }
    static double width(std::size_t b) {
        return b + 1 < buckets ? static_cast<double>(edge(b + 1) - edge(b))
                               : 0.41 * static_cast<double>(edge(b));
    }

    void run(const kvstem::replay::Trace& trace) {
        std::uint64_t now = 0;
        for (const auto& request : trace.requests) {
            const auto whole = trace.path(request);
            const auto path = whole.first(std::min(whole.size(), capacity));
            step(now++, whole, {path.begin(), path.end()}, trace.has_partial_tail(request));
        }
    }

    void step(std::uint64_t now, std::span<const kvstem::Token> whole, std::vector<int> path,
              bool partial) {
        for (const int id : whole) {
            if (!blocks[id].resident) break;
            ++hits;
        }
        partial = partial && whole.size() == path.size();
        // What was live since the request before was exposed to one request in the bucket it was
        // in.
        std::size_t known = 0;
        for (auto& [id, b] : blocks) {
            if (!b.known) continue;
            ++known;
            exposure[b.block_class][bucket_of(now - 1 - b.time)] += 1;
        }
        for (; known > history_limit; --known) {
            Block* oldest = nullptr;
            for (auto& [id, b] : blocks) {
                if (!b.known) continue;
                if (oldest == nullptr ||
                    std::tuple(b.time, ~b.depth) < std::tuple(oldest->time, ~oldest->depth)) {
                    oldest = &b;
                }
            }
            oldest->known = false;
        }
        touch(now, path, partial);
        if (now == next_rebuild) {
            rebuild();
            next_rebuild += now < 1024 ? 16 : now < 16'384 ? now / 64 : 256;
        }
        insert(now, path);
    }

    void touch(std::uint64_t now, const std::vector<int>& path, bool partial) {
        std::size_t k = 0;
        while (k < path.size() && blocks[path[k]].known) ++k;
        for (const int id : path) {
            const Block& b = blocks[id];
            if (b.known) reuses[b.block_class][bucket_of(now - b.time)] += 1;
        }
        const std::size_t d = path.size() - k;
        const std::size_t size =
            d == 0 ? 0
                   : 1 + std::min<std::size_t>(
                             14, static_cast<std::size_t>(std::floor(std::log2(double(d)))));
        for (std::size_t i = 0; i < path.size(); ++i) {
            Block& b = blocks[path[i]];
            b.count = i < k ? b.count + 1 : 1;
            b.block_class = (std::min<std::size_t>(b.count, 4) - 1) * 16 + size;
            if (partial && i + 1 == path.size()) b.block_class = 64;
            b.time = now;
            b.depth = i + 1;
            b.parent = i == 0 ? -1 : path[i - 1];
            b.known = true;
        }
    }

    void rebuild() {
        std::array<double, buckets> pooled{};
        const auto sum = [](const Table& table, std::size_t b, auto in_group) {
            double total = 0;
            for (std::size_t c = 0; c < classes; ++c) total += in_group(c) ? table[c][b] : 0;
            return total;
        };
        for (std::size_t b = 0; b < buckets; ++b) {
            const double prior = b == 0   ? 1.0 / static_cast<double>(capacity + 1)
                                 : b == 1 ? pooled[0]
                                          : pooled[b - 1] / 2;
            const auto all = [](std::size_t) { return true; };
            pooled[b] = (sum(reuses, b, all) + 10) / (sum(exposure, b, all) + 10 / prior);
        }
        for (std::size_t c = 0; c < classes; ++c) {
            std::array<double, buckets> p{};
            for (std::size_t b = 0; b < buckets; ++b) {
                const auto marginal = [&](auto in_group) {
                    return (sum(reuses, b, in_group) + 30) /
                           (sum(exposure, b, in_group) + 30 / pooled[b]);
                };
                double q = pooled[b];
                if (c != 64) {
                    const double a = marginal([&](auto i) { return i != 64 && i / 16 == c / 16; });
                    const double s = marginal([&](auto i) { return i != 64 && i % 16 == c % 16; });
                    q = a * s / pooled[b];
                }
                const double z = (reuses[c][b] + 30) / (exposure[c][b] + 30 / q);
                const double x = z * width(b);
                p[b] = x > 3.4 ? 0.93 : x / (1 + x / 2 + x * x / 12);
            }
            for (std::size_t b = 0; b < buckets; ++b) {
                double s = 1, n = 0, d = 0;
                worth[c][b] = 0;
                for (std::size_t i = b; i < buckets; ++i) {
                    n += s * p[i];
                    d += s * width(i) * (1 - p[i] / 2);
                    s *= 1 - p[i];
                    worth[c][b] = std::max(worth[c][b], n / d);
                }
            }
        }
    }

    void insert(std::uint64_t now, const std::vector<int>& path) {
        const std::set<int> pinned(path.begin(), path.end());
        std::size_t resident = 0;
        std::map<int, int> children;
        for (const auto& [id, b] : blocks) {
            if (!b.resident) continue;
            ++resident;
            ++children[b.parent];
        }
        std::size_t fresh = 0;
        for (const int id : path) fresh += blocks[id].resident ? 0 : 1;
        for (; resident + fresh > capacity; --resident) {
            Block* victim = nullptr;
            const auto key = [&](const Block& b) {
                return std::tuple(worth[b.block_class][bucket_of(now - b.time)], b.time, ~b.depth);
            };
            for (auto& [id, b] : blocks) {
                if (!b.resident || children[id] != 0 || pinned.count(id) != 0) continue;
                if (victim == nullptr || key(b) < key(*victim)) victim = &b;
            }
            victim->resident = false;
            --children[victim->parent];
            ++evicted;
        }
        for (const int id : path) blocks[id].resident = true;
    }
};

}  // namespace kvstem_test
