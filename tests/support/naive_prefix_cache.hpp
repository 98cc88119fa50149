// SPDX-License-Identifier: MIT
// PrefixCache as a list that is scanned: the oracle of the property tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "kvstem/prefix_cache.hpp"
#include "support/naive_snapshots.hpp"

namespace kvstem_test {

template <class Kv>
struct NaivePrefixCache : NaiveSnapshots<Kv> {
    using typename NaiveSnapshots<Kv>::Entry;
    using NaiveSnapshots<Kv>::entries;
    using Logits = std::optional<std::vector<float>>;
    struct Hit {
        std::size_t tokens;
        Logits logits;
        bool moved;
    };

    kvstem::SnapshotCapacity capacity{};
    std::uint64_t clock = 0;
    kvstem::PrefixCacheStats stats{};

    std::optional<Hit> look_up(const Tokens& prompt, std::size_t name, bool take) {
        const auto match = this->locate(prompt, name);
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
        while (entries.size() + 1 > capacity.max_entries ||
               this->bytes() + bytes > capacity.max_bytes) {
            evict();
        }
        entries.push_back({name, tokens, bytes, logits, ++clock});
        ++stats.stored;
        stats.replaced += replaced;
        return replaced != 0 ? kvstem::StoreOutcome::replaced : kvstem::StoreOutcome::stored;
    }
    bool evict() {
        if (!this->remove_oldest()) return false;
        ++stats.evictions;
        return true;
    }
    std::size_t drop(std::size_t name) {
        return std::erase_if(entries, [&](const Entry& e) { return e.name == name; });
    }
};

}  // namespace kvstem_test
