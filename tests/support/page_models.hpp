// SPDX-License-Identifier: MIT
// A cache as a map from prefixes to pages, and eviction orders that look at every page: the oracles
// of the policies.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "support/token_rows.hpp"

namespace kvstem_test {

/// What any of the orders wants to know of a page. Times count granted requests and publications.
struct ModelPage {
    std::uint64_t inserted = 0;
    std::uint64_t touched = 0;
    std::uint32_t touches = 0;
    std::size_t depth = 0;
    std::uint64_t value = 0;                  // LFU with ageing
    bool is_protected = false;                // SLRU
    bool in_main = false;                     // S3-FIFO
    std::uint64_t place = 0;                  // …
    int count = 0;                            // …
    std::uint64_t run = 0;                    // …: pages of one run go through the queues together
    std::uint8_t priority = 35;               // priorities
    std::uint64_t until = ~std::uint64_t{0};  // …
};

using ModelPath = std::vector<int>;  // a prefix, a number for each page
using ModelPages = std::map<ModelPath, ModelPage>;

inline ModelPath prefix_of(const ModelPath& path, std::size_t pages) {
    return {path.begin(), path.begin() + static_cast<std::ptrdiff_t>(pages)};
}

/// An order by a key: the page with the least one goes first.
template <class KeyOf>
struct KeyOrder {
    KeyOf key_of;
    void touch(ModelPages&, const ModelPath&) {}
    void insert(ModelPages&, const ModelPath&) {}
    void evicted(const ModelPath&, const ModelPage&) {}
    ModelPath choose(ModelPages& pages, const std::set<ModelPath>& leaves) {
        return *std::min_element(leaves.begin(), leaves.end(), [&](const auto& a, const auto& b) {
            return key_of(pages.at(a)) < key_of(pages.at(b));
        });
    }
};

inline auto fifo_model() {
    const auto key = [](const ModelPage& p) { return std::tuple(p.inserted, ~p.depth); };
    return KeyOrder<decltype(key)>{key};
}
inline auto lfu_model() {
    const auto key = [](const ModelPage& p) { return std::tuple(p.touches, p.touched, ~p.depth); };
    return KeyOrder<decltype(key)>{key};
}
inline auto length_aware_model() {
    const auto key = [](const ModelPage& p) { return std::tuple(p.touches, ~p.depth, p.touched); };
    return KeyOrder<decltype(key)>{key};
}

struct AgeingModel {
    std::uint64_t floor = 0;
    void touch(ModelPages& pages, const ModelPath& path) { insert(pages, path); }
    void insert(ModelPages& pages, const ModelPath& path) {
        pages.at(path).value = floor + 1 + pages.at(path).touches;
    }
    void evicted(const ModelPath&, const ModelPage&) {}
    ModelPath choose(ModelPages& pages, const std::set<ModelPath>& leaves) {
        const auto key = [&](const ModelPath& l) {
            const ModelPage& p = pages.at(l);
            return std::tuple(p.value, p.touched, ~p.depth);
        };
        const ModelPath victim = *std::min_element(
            leaves.begin(), leaves.end(), [&](auto& a, auto& b) { return key(a) < key(b); });
        floor = pages.at(victim).value;
        return victim;
    }
};

struct SegmentedModel {
    std::size_t most_protected;
    void touch(ModelPages& pages, const ModelPath& path) { pages.at(path).is_protected = true; }
    void insert(ModelPages&, const ModelPath&) {}
    void evicted(const ModelPath&, const ModelPage&) {}
    /// After all pages of a request were touched.
    void settle(ModelPages& pages) {
        while (true) {
            std::size_t count = 0;
            ModelPage* oldest = nullptr;
            for (auto& [path, page] : pages) {
                if (!page.is_protected) continue;
                ++count;
                const auto key = [](const ModelPage& p) { return std::tuple(p.touched, ~p.depth); };
                if (oldest == nullptr || key(page) < key(*oldest)) oldest = &page;
            }
            if (count <= most_protected) return;
            oldest->is_protected = false;
        }
    }
    ModelPath choose(ModelPages& pages, const std::set<ModelPath>& leaves) {
        const auto key = [&](const ModelPath& l) {
            const ModelPage& p = pages.at(l);
            return std::tuple(p.is_protected, p.touched, ~p.depth);
        };
        return *std::min_element(leaves.begin(), leaves.end(),
                                 [&](auto& a, auto& b) { return key(a) < key(b); });
    }
};

struct S3FifoModel {
    std::size_t capacity;
    std::uint64_t clock = 0;
    std::vector<ModelPath>
        ghosts{};  // the oldest first; a taken one leaves a hole that ages with it

    /// Adoption adds to the count of a run. The first page of a run to be told counts for it.
    void touch(ModelPages& pages, const ModelPath& path) {
        pages.at(path).count = std::min(pages.at(path).count + 1, 3);
    }
    bool take_ghost(const ModelPath& path) {
        const auto found = std::find(ghosts.begin(), ghosts.end(), path);
        if (found == ghosts.end()) return false;
        found->clear();
        return true;
    }
    void insert(ModelPages&, const ModelPath&) {}
    /// All pages of one publication, from the root on.
    void insert_run(ModelPages& pages, const std::vector<ModelPath>& paths) {
        ++clock;
        bool known = true;
        for (const ModelPath& path : paths) {
            const bool was_ghost = take_ghost(path);
            known = known && was_ghost;
            pages.at(path).in_main = known;
            pages.at(path).place = clock;
        }
    }
    void evicted(const ModelPath& path, const ModelPage& page) {
        if (page.in_main) return;
        if (std::find(ghosts.begin(), ghosts.end(), path) != ghosts.end()) return;
        ghosts.push_back(path);
        if (ghosts.size() > capacity) ghosts.erase(ghosts.begin());
    }
    ModelPath choose(ModelPages& pages, const std::set<ModelPath>& leaves) {
        while (true) {
            const auto oldest = [&](bool in_main) {
                const ModelPath* best = nullptr;
                for (const ModelPath& leaf : leaves) {
                    const ModelPage& p = pages.at(leaf);
                    if (p.in_main != in_main) continue;
                    const auto key = [](const ModelPage& q) {
                        return std::tuple(q.place, ~q.depth);
                    };
                    if (best == nullptr || key(p) < key(pages.at(*best))) best = &leaf;
                }
                return best;
            };
            std::size_t small = 0;
            for (const auto& [path, page] : pages) small += page.in_main ? 0 : 1;
            const ModelPath* in_small = oldest(false);
            const ModelPath* in_main = oldest(true);
            const bool from_small =
                in_main == nullptr || (small >= capacity / 10 && in_small != nullptr);
            const ModelPath victim = from_small ? *in_small : *in_main;
            const ModelPage chosen = pages.at(victim);
            if (chosen.count <= (from_small ? 1 : 0)) return victim;
            ++clock;
            for (auto& [path, page] : pages) {
                if (page.run != chosen.run) continue;
                page.place = clock;
                page.count = from_small ? 0 : chosen.count - 1;
                page.in_main = true;
            }
        }
    }
};

struct PriorityModel {
    const std::uint64_t* now;
    void touch(ModelPages&, const ModelPath&) {}
    void insert(ModelPages&, const ModelPath&) {}
    void evicted(const ModelPath&, const ModelPage&) {}
    ModelPath choose(ModelPages& pages, const std::set<ModelPath>& leaves) {
        const auto key = [&](const ModelPath& l) {
            const ModelPage& p = pages.at(l);
            return std::tuple(p.until <= *now ? 35 : p.priority, p.touched, ~p.depth);
        };
        return *std::min_element(leaves.begin(), leaves.end(),
                                 [&](auto& a, auto& b) { return key(a) < key(b); });
    }
};

}  // namespace kvstem_test
