// SPDX-License-Identifier: MIT
// Least frequently used, leaves first.
#pragma once

#include "../config.hpp"
#include "../detail/leaf_order.hpp"

namespace kvstem::inline KVSTEM_ABI {

namespace detail {
struct FewestTouchesFirst {
    bool operator()(const LeafHistory& a, const LeafHistory& b) const noexcept {
        if (a.touches != b.touches) return a.touches < b.touches;
        return older_or_deeper(a, b);
    }
};
}  // namespace detail

/// Evicts the leaf that was adopted the fewest times since it was published; equal counts go by the
/// oldest touch, then the deepest page first. A page that comes back after its eviction starts from
/// 0. What was popular once is kept for ever: see FrequencyWithAgeing.
///
/// Times count granted requests and publications. Complexity: O(log n) amortised a call, O(d) a
/// request of d nodes. Never throws, never allocates.
class LeastFrequentlyUsed
    : public detail::LeafOrder<LeastFrequentlyUsed, detail::FewestTouchesFirst> {
  public:
    LeastFrequentlyUsed() = default;
};

}  // namespace kvstem
