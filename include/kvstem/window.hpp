// SPDX-License-Identifier: MIT
// Sliding windows: where a sequence whose early positions are gone may be taken up again.
//
// A layer with a window of W computes position p from the positions p − W + 1 … p, its own
// included. So a sequence can be taken up at length n (its next token gets position n) exactly if
// the W − 1 positions before n are there. Everything in this header follows from that sentence.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>

#include "config.hpp"
#include "errors.hpp"

namespace kvstem::inline KVSTEM_ABI {

/// The oldest position that is read to compute `position`: max(0, position − W + 1). A window of 0
/// is no window: everything is read.
[[nodiscard]] constexpr std::size_t first_position_in_window(std::size_t position,
                                                             std::size_t window_tokens) noexcept {
    return window_tokens == 0 || position < window_tokens ? 0 : position - (window_tokens - 1);
}

/// What `longest_cut` (kv_traits.hpp) is for a windowed snapshot that holds the positions
/// [first_kept, length): the greatest length ≤ n it can be cut to, 0 if none.
///
///     0 ········ first_kept ───────── n ──── length
///     │ dropped  │     │← W − 1 read →│             n is possible if these are all kept
///
/// A shorter cut reads still earlier positions, so where n is not possible nothing below it is.
[[nodiscard]] constexpr std::size_t longest_window_cut(std::size_t first_kept, std::size_t length,
                                                       std::size_t n,
                                                       std::size_t window_tokens) noexcept {
    n = std::min(n, length);
    return first_position_in_window(n, window_tokens) >= first_kept ? n : 0;
}

/// Of a sequence's first `pages` pages, some of which are gone, the longest beginning that it can
/// be taken up after, in whole pages: `is_present(i)` says whether page i is there. 0 if none.
///
/// Example: W = 5, P = 2, pages 0 1 1: length 6 needs the positions 2 … 5, which are there, so the
/// hole at the root does no harm: 6.
/// Throws: InvalidArgument for a page size of 0, or if so many positions cannot be counted; what
/// `is_present` throws. Complexity: O(pages), one call for each.
template <class IsPresent>
[[nodiscard]] std::size_t longest_usable_length(std::size_t pages, IsPresent&& is_present,
                                                std::size_t window_tokens,
                                                std::size_t page_tokens) {
    if (page_tokens == 0 || pages > std::numeric_limits<std::size_t>::max() / page_tokens) {
        detail::fail<InvalidArgument>("%zu pages of %zu tokens", pages, page_tokens);
    }
    std::size_t longest = 0;
    std::size_t run_begin = 0;  // the pages [run_begin, i] are there
    for (std::size_t i = 0; i < pages; ++i) {
        if (!is_present(i)) {
            run_begin = i + 1;
            continue;
        }
        const std::size_t length = (i + 1) * page_tokens;
        const std::size_t first_read = first_position_in_window(length, window_tokens);
        if (first_read >= run_begin * page_tokens) longest = length;
    }
    return longest;
}

}  // namespace kvstem
