// SPDX-License-Identifier: MIT
// Snapshots as a list: the best match by looking at all of them, the oldest likewise.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "support/counting_kv.hpp"

namespace kvstem_test {

/// Of a KV type it knows only `Kv::cut(length, n)`; namespaces are numbers.
template <class Kv>
struct NaiveSnapshots {
    struct Entry {
        std::size_t name;
        Tokens tokens;
        std::size_t bytes;
        std::optional<std::vector<float>> logits;
        std::uint64_t used;
    };
    struct Match {
        std::size_t entry = 0;
        std::size_t tokens = 0;
        bool whole = false;  // covers the whole stored sequence
    };

    std::vector<Entry> entries;

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
    /// Whether there was one to remove.
    bool remove_oldest() {
        if (entries.empty()) return false;
        entries.erase(std::min_element(entries.begin(), entries.end(),
                                       [](auto& a, auto& b) { return a.used < b.used; }));
        return true;
    }
    [[nodiscard]] std::size_t bytes() const {
        std::size_t sum = 0;
        for (const Entry& e : entries) sum += e.bytes;
        return sum;
    }
};

}  // namespace kvstem_test
