// SPDX-License-Identifier: MIT
// RadixCache as a map from prefixes to pages: the oracle of the property tests.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "support/token_rows.hpp"

namespace kvstem_test {

/// One map entry for each cached page. Page ids of new pages are told to it. Every tree has a
/// number that is never used again; what a cleared tree's leases read stays under the old number.
struct NaiveRadixCache {
    using Key = std::pair<std::size_t, Tokens>;  // the tree's number, a prefix of whole pages
    struct Page {
        PageId page;
        std::uint64_t used = 0;
    };
    struct Lease {
        std::size_t tree;
        Tokens tokens;  // those written
        std::size_t shared;
        Ids table;
    };

    std::size_t page_tokens;
    std::size_t capacity;
    std::vector<std::size_t> tree_of;  // by namespace
    std::size_t trees = 0;
    std::map<Key, Page> pages{};
    std::vector<Lease> leases{};
    std::uint64_t clock = 0;

    Key key(std::size_t tree, const Tokens& tokens, std::size_t n) const {
        return {tree, Tokens(tokens.begin(),
                             tokens.begin() + static_cast<std::ptrdiff_t>(n * page_tokens))};
    }
    bool is_current(std::size_t tree) const {
        return std::find(tree_of.begin(), tree_of.end(), tree) != tree_of.end();
    }
    bool is_pinned(const Key& k) const {
        for (const Lease& l : leases) {
            const std::size_t n = k.second.size() / page_tokens;
            if (l.tree == k.first && l.shared >= n && key(l.tree, l.tokens, n) == k) return true;
        }
        return false;
    }
    std::size_t whole_pages_cached(std::size_t tree, const Tokens& tokens) const {
        std::size_t n = 0;
        while ((n + 1) * page_tokens <= tokens.size() && pages.count(key(tree, tokens, n + 1))) ++n;
        return n;
    }
    /// Longest agreement of the page that follows n whole pages with any page cached there.
    std::size_t partial(std::size_t tree, const Tokens& tokens, std::size_t n) const {
        std::size_t best = 0;
        for (const auto& [k, page] : pages) {
            if (k.first != tree || k.second.size() != (n + 1) * page_tokens) continue;
            std::size_t i = 0;
            while (i < k.second.size() && i < tokens.size() && k.second[i] == tokens[i]) ++i;
            best = std::max(best, i);
        }
        return best <= n * page_tokens ? 0 : best - n * page_tokens;
    }
    std::multiset<PageId> held_by_leases() const {
        std::multiset<PageId> held;
        for (const Lease& l : leases) held.insert(l.table.begin(), l.table.end());
        return held;
    }
    std::size_t free() const {
        const auto leased = held_by_leases();
        std::set<PageId> held(leased.begin(), leased.end());
        for (const auto& [k, page] : pages) held.insert(page.page);
        return capacity - held.size();
    }
    /// Evicts the page that was used the longest ago, if any may go.
    bool evict() {
        auto oldest = pages.end();
        for (auto i = pages.begin(); i != pages.end(); ++i) {
            if (!is_current(i->first.first) || is_pinned(i->first)) continue;
            if (oldest == pages.end() || i->second.used < oldest->second.used) oldest = i;
        }
        if (oldest == pages.end()) return false;
        pages.erase(oldest);
        return true;
    }
    /// Evicts until n pages are free; false, with nothing evicted, if that cannot be reached.
    bool make_room(std::size_t n) {
        const auto before = pages;
        while (free() < n) {
            if (evict()) continue;
            pages = before;
            return false;
        }
        return true;
    }
    /// A lease reads its shared pages from now on only down to `shared`.
    void unpin(std::size_t lease, std::size_t shared) {
        const Lease l = leases[lease];
        leases[lease].shared = shared;
        for (std::size_t n = l.shared; n > shared; --n) {
            const Key k = key(l.tree, l.tokens, n);
            if (is_pinned(k)) continue;
            if (is_current(l.tree))
                pages.at(k).used = ++clock;
            else
                pages.erase(k);
        }
    }
    void publish(Lease& l) {
        if (!is_current(l.tree)) return;
        for (; (l.shared + 1) * page_tokens <= l.tokens.size(); ++l.shared) {
            pages.insert({key(l.tree, l.tokens, l.shared + 1), {l.table[l.shared]}});
        }
    }
    void drop(std::size_t name) {
        for (auto i = pages.begin(); i != pages.end();) {
            i = i->first.first == tree_of[name] && !is_pinned(i->first) ? pages.erase(i) : ++i;
        }
        tree_of[name] = trees++;
    }
};

}  // namespace kvstem_test
