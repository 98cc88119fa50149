// SPDX-License-Identifier: MIT
// PrefixCache as a list that is scanned: the oracle of the property tests.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "counting_kv.hpp"
#include "kvstem/prefix_cache.hpp"

namespace kvstem_test {

/// Of a KV type it knows only `Kv::cut(length, n)`; namespaces are numbers.
template <class Kv>
struct NaivePrefixCache {
    using Logits = std::optional<std::vector<float>>;
    struct Entry {
        std::size_t name;
        Tokens tokens;
        std::size_t bytes;
        Logits logits;
        std::uint64_t used;
    };
    struct Match {
        std::size_t entry = 0;
        std::size_t tokens = 0;
        bool whole = false;  // covers the whole stored sequence
    };
    struct Hit {
        std::size_t tokens;
        Logits logits;
        bool moved;
    };

    kvstem::SnapshotCapacity capacity;
    std::vector<Entry> entries;
    std::uint64_t clock = 0;
    kvstem::PrefixCacheStats stats;

    [[nodiscard]] Match locate(const Tokens& prompt, std::size_t name) const {
        Match best;
        for (std::size_t i = 0; i < entries.size(); ++i) {
            const Entry& e = entries[i];
            if (e.name != name) continue;
            std::size_t n = 0;
            while (n < prompt.size() && n < e.tokens.size() && prompt[n] == e.tokens[n]) ++n;
            const bool whole = n == e.tokens.size();
            if (!whole) n = Kv::cut(e.tokens.size(), n);
            const bool wins = n != best.tokens      ? n > best.tokens
                              : whole != best.whole ? whole
                                                    : e.used > entries[best.entry].used;
            if (n != 0 && wins) best = {i, n, whole};
        }
        return best;
    }
    std::optional<Hit> look_up(const Tokens& prompt, std::size_t name, bool take) {
        const Match match = locate(prompt, name);
        ++(match.tokens != 0 ? stats.hits : stats.misses);
        stats.queried_tokens += prompt.size();
        stats.hit_tokens += match.tokens;
        stats.missed_tokens += prompt.size() - match.tokens;
        if (match.tokens == 0) return std::nullopt;
        Entry& e = entries[match.entry];
        e.used = ++clock;
        const Hit hit{match.tokens, match.whole ? e.logits : Logits(), take && match.whole};
        stats.taken += hit.moved ? 1 : 0;
        if (hit.moved) entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(match.entry));
        return hit;
    }
    kvstem::StoreOutcome store(const Tokens& tokens, std::size_t kv_bytes, const Logits& logits,
                               std::size_t name) {
        const std::size_t bytes = kv_bytes + tokens.size() * sizeof(kvstem::Token) +
                                  (logits ? logits->size() * sizeof(float) : 0);
        if (tokens.empty()) return kvstem::StoreOutcome::empty;
        if (capacity.max_entries == 0 || bytes > capacity.max_bytes) {
            ++stats.refused;
            return kvstem::StoreOutcome::too_large;
        }
        const std::size_t replaced = std::erase_if(
            entries, [&](const Entry& e) { return e.name == name && e.tokens == tokens; });
        while (entries.size() + 1 > capacity.max_entries || held() + bytes > capacity.max_bytes) {
            evict();
        }
        entries.push_back({name, tokens, bytes, logits, ++clock});
        ++stats.stored;
        stats.replaced += replaced;
        return replaced != 0 ? kvstem::StoreOutcome::replaced : kvstem::StoreOutcome::stored;
    }
    bool evict() {
        if (entries.empty()) return false;
        entries.erase(std::min_element(entries.begin(), entries.end(),
                                       [](auto& a, auto& b) { return a.used < b.used; }));
        ++stats.evictions;
        return true;
    }
    std::size_t drop(std::size_t name) {
        return std::erase_if(entries, [&](const Entry& e) { return e.name == name; });
    }
    [[nodiscard]] std::size_t held() const {
        std::size_t bytes = 0;
        for (const Entry& e : entries) bytes += e.bytes;
        return bytes;
    }
};

}  // namespace kvstem_test
