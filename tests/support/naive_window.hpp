// SPDX-License-Identifier: MIT
// Sliding windows by their definition, position by position: the oracle of the property tests.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "kvstem/sliding_window.hpp"
#include "support/counting_kv.hpp"

namespace kvstem_test {

/// Whether the row at `position` reads the row at `p`; with W = 0 it reads them all.
inline bool window_reads(std::size_t position, std::size_t p, std::size_t window) {
    return p <= position && (window == 0 || p + window > position);
}

/// The longest beginning in whole pages after which the next row finds all it reads; the last page
/// has to be there even if nobody reads it.
inline std::size_t naive_usable_length(const std::vector<bool>& present, std::size_t window,
                                       std::size_t page_tokens) {
    for (std::size_t n = present.size() * page_tokens; n > 0; n -= page_tokens) {
        bool usable = present[n / page_tokens - 1];
        for (std::size_t p = 0; p < n; ++p) {
            usable = usable && (!window_reads(n, p, window) || present[p / page_tokens]);
        }
        if (usable) return n;
    }
    return 0;
}

/// The longest m ≤ n at which a sequence that holds [first_kept, length) can be taken up; not
/// before what it holds, even if nobody reads that.
inline std::size_t naive_window_cut(std::size_t first_kept, std::size_t length, std::size_t n,
                                    std::size_t window) {
    for (std::size_t m = std::min(n, length); m > 0 && m >= first_kept; --m) {
        bool possible = true;
        for (std::size_t p = 0; p < m && p < first_kept; ++p) {
            possible = possible && !window_reads(m, p, window);
        }
        if (possible) return m;
    }
    return 0;
}

/// A lease whose window slides: what is written, and from where on it is held.
struct NaiveSlidingLease {
    kvstem::SlidingWindow window;
    Tokens prompt;
    std::size_t pages;   // that its table names
    std::size_t shared;  // positions in the tree
    Tokens tokens{};     // written
    std::size_t kept_from = 0;
    bool has_slid = false;   // a page was given to a later position
    bool is_current = true;  // the cache was not cleared since
    std::optional<std::size_t> anchor{};

    /// The first position that the row at `position` reads.
    [[nodiscard]] std::size_t read_from(std::size_t position) const {
        std::size_t first = position;
        while (first > 0 && window_reads(position, first - 1, window.window_tokens)) --first;
        return first;
    }
    void slide() {
        std::size_t from = read_from(tokens.size());
        from -= std::min(from, window.retained_tokens);
        if (anchor && tokens.size() >= *anchor + window.window_tokens) anchor.reset();
        if (anchor) from = std::min(from, read_from(*anchor));
        if (from >= kept_from + window.interval_tokens) kept_from = from;
    }
    [[nodiscard]] bool can_go_to(std::size_t position) const {
        return position <= tokens.size() && read_from(position) >= kept_from;
    }
};

}  // namespace kvstem_test
