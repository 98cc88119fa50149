// SPDX-License-Identifier: MIT
// RadixCache as a map from prefixes to pages: the oracle of the property tests.
#pragma once

#include <algorithm>
#include <set>
#include <vector>

#include "support/naive_page_map.hpp"

namespace kvstem_test {

/// Page ids of new pages are told to it.
struct NaiveRadixCache : NaivePageMap {
    struct Lease {
        std::size_t tree;
        Tokens tokens;  // those written
        std::size_t shared;
        Ids table;
    };
    std::size_t capacity;
    std::vector<std::size_t> tree_of;  // by namespace
    std::size_t trees = 0;
    std::vector<Lease> leases{};
    std::uint64_t clock = 0;

    [[nodiscard]] bool is_current(std::size_t tree) const {
        return std::find(tree_of.begin(), tree_of.end(), tree) != tree_of.end();
    }
    [[nodiscard]] bool is_pinned(const Key& k) const {
        const std::size_t n = k.second.size() / page_tokens;
        return std::any_of(leases.begin(), leases.end(), [&](const Lease& l) {
            return l.tree == k.first && l.shared >= n && key(l.tree, l.tokens, n) == k;
        });
    }
    [[nodiscard]] std::multiset<PageId> held_by_leases() const {
        std::multiset<PageId> held;
        for (const Lease& l : leases) held.insert(l.table.begin(), l.table.end());
        return held;
    }
    [[nodiscard]] std::size_t free() const {
        const auto leased = held_by_leases();
        std::set<PageId> held(leased.begin(), leased.end());
        for (const auto& [k, page] : pages) held.insert(page.page);
        return capacity - held.size();
    }
    bool evict() {
        return remove_oldest([&](const Key& k) { return is_current(k.first) && !is_pinned(k); });
    }
    /// Evicts until n pages are free; false, with nothing evicted, if that cannot be reached.
    bool make_room(std::size_t n) {
        const auto before = pages;
        while (free() < n && evict()) continue;
        if (free() >= n) return true;
        pages = before;
        return false;
    }
    /// A lease reads its shared pages from now on only down to `shared`.
    void unpin(std::size_t lease, std::size_t shared) {
        const Lease l = leases[lease];
        leases[lease].shared = shared;
        for (std::size_t n = l.shared; n > shared; --n) {
            const Key k = key(l.tree, l.tokens, n);
            if (!is_pinned(k) && is_current(l.tree)) pages.at(k).used = ++clock;
            if (!is_pinned(k) && !is_current(l.tree)) pages.erase(k);
        }
    }
    void publish(Lease& l) {
        if (is_current(l.tree)) l.shared = NaivePageMap::publish(l.tree, l.tokens, l.table);
    }
    void drop(std::size_t name) {
        std::erase_if(pages, [&](const auto& entry) {
            return entry.first.first == tree_of[name] && !is_pinned(entry.first);
        });
        tree_of[name] = trees++;
    }
};

}  // namespace kvstem_test
