// SPDX-License-Identifier: MIT
// SlidingWindow: how much of its past a request needs whose layers all attend to the last positions
// only.
#pragma once

#include <algorithm>
#include <cstddef>

#include "config.hpp"

namespace kvstem::inline KVSTEM_ABI {

/// The window of a request, for models whose layers ALL slide by the same one. A model that mixes
/// full and windowed layers needs every page for its full layers and must not slide.
///
///     positions  0 ······ kept_from ·········· written ··· written + ahead
///                │ behind │ retained │ window  │ the next  │
///                │        │  extra   │ W − 1   │ step      │
///
/// The row at position p reads the rows of positions p − W + 1 … p, so with `written` rows the next
/// one needs the W − 1 before it. The rest behind is given up, `interval_tokens` at a time.
struct SlidingWindow {
    std::size_t window_tokens = 0;    ///< W, the position itself included; at least 1
    std::size_t retained_tokens = 0;  ///< kept beyond the window, e.g. for drafts that are cut back
    std::size_t interval_tokens = 1;  ///< positions that are given up at a time; at least 1
    std::size_t ahead_tokens = 1;     ///< the most positions one step computes; at least 1

    /// W1: pages that a request holds at most beside those of its prompt, however long its answer.
    /// They are taken at admission.
    ///
    /// The positions that have to be held at any time are at most L = (W − 1) + retained +
    /// (interval − 1) + ahead neighbours, and L neighbours touch at most ⌈(L − 1) / P⌉ + 1 pages.
    [[nodiscard]] constexpr std::size_t bound_pages(std::size_t page_tokens) const noexcept {
        return pages_touched(behind(), page_tokens);
    }
    /// The same while a position is anchored (W4): from W − 1 positions before it to W − 1 past it.
    [[nodiscard]] constexpr std::size_t anchored_bound_pages(
        std::size_t page_tokens) const noexcept {
        const std::size_t reach = window_tokens - 1;
        const std::size_t both_sides = reach > ~reach ? ~std::size_t{0} : 2 * reach;
        return pages_touched(std::max(behind(), both_sides), page_tokens);
    }

  private:
    [[nodiscard]] constexpr std::size_t behind() const noexcept {
        const std::size_t reach = window_tokens - 1;
        return retained_tokens > ~reach ? ~std::size_t{0} : reach + retained_tokens;
    }
    [[nodiscard]] constexpr std::size_t pages_touched(std::size_t reach,
                                                      std::size_t page_tokens) const noexcept {
        // Saturates: windows near the limit of size_t must not wrap to small ones.
        std::size_t others = reach;
        for (const std::size_t more : {interval_tokens - 1, ahead_tokens - 1}) {
            others = more > ~others ? ~std::size_t{0} : others + more;
        }
        const std::size_t pages = others / page_tokens + (others % page_tokens != 0 ? 1 : 0);
        return pages == ~std::size_t{0} ? pages : pages + 1;
    }
};

}  // namespace kvstem
