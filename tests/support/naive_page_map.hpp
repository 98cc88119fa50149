// SPDX-License-Identifier: MIT
// Cached pages as a map from prefixes to pages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "support/token_rows.hpp"

namespace kvstem_test {

/// One entry for each cached page. Every tree has a number that is never used again; what a cleared
/// tree's leases read stays under the old number.
struct NaivePageMap {
    using Key = std::pair<std::size_t, Tokens>;  // the tree's number, a prefix of whole pages
    struct Page {
        PageId page;
        std::uint64_t used = 0;
    };

    std::size_t page_tokens;
    std::map<Key, Page> pages{};

    /// The first n whole pages of these tokens.
    [[nodiscard]] Key key(std::size_t tree, const Tokens& tokens, std::size_t n) const {
        const auto end = tokens.begin() + static_cast<std::ptrdiff_t>(n * page_tokens);
        return {tree, Tokens(tokens.begin(), end)};
    }
    [[nodiscard]] std::size_t whole_pages_cached(std::size_t tree, const Tokens& tokens) const {
        std::size_t n = 0;
        while ((n + 1) * page_tokens <= tokens.size() && pages.count(key(tree, tokens, n + 1))) ++n;
        return n;
    }
    /// Longest agreement of the page that follows n whole pages with any page cached there.
    [[nodiscard]] std::size_t partial(std::size_t tree, const Tokens& tokens, std::size_t n) const {
        std::size_t best = n * page_tokens;
        for (const auto& [k, page] : pages) {
            if (k.first != tree || k.second.size() != (n + 1) * page_tokens) continue;
            std::size_t i = 0;
            while (i < k.second.size() && i < tokens.size() && k.second[i] == tokens[i]) ++i;
            best = std::max(best, i);
        }
        return best - n * page_tokens;
    }
    /// Adds what is missing of the whole pages of these tokens; returns how many pages they are.
    std::size_t publish(std::size_t tree, const Tokens& tokens, const Ids& table) {
        const std::size_t whole = tokens.size() / page_tokens;
        for (std::size_t n = 0; n < whole; ++n)
            pages.insert({key(tree, tokens, n + 1), {table[n]}});
        return whole;
    }
    /// Removes the page that was used the longest ago of those that may go, if any may.
    template <class MayGo>
    bool remove_oldest(MayGo&& may_go) {
        auto oldest = pages.end();
        for (auto i = pages.begin(); i != pages.end(); ++i) {
            if (!may_go(i->first)) continue;
            if (oldest == pages.end() || i->second.used < oldest->second.used) oldest = i;
        }
        if (oldest == pages.end()) return false;
        pages.erase(oldest);
        return true;
    }
};

}  // namespace kvstem_test
