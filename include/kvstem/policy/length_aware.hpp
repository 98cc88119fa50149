// SPDX-License-Identifier: MIT
// Length-aware: few touches and far from the root go first.
#pragma once

#include "../config.hpp"
#include "../detail/leaf_order.hpp"

namespace kvstem::inline KVSTEM_ABI {

namespace detail {
struct FewestTouchesThenDeepestFirst {
    bool operator()(const LeafHistory& a, const LeafHistory& b) const noexcept {
        if (a.touches != b.touches) return a.touches < b.touches;
        if (a.depth != b.depth) return a.depth > b.depth;
        return a.touched < b.touched;
    }
};
}  // namespace detail

/// Evicts the leaf that was adopted the fewest times since it was published; equal counts go by
/// depth, the page farthest from the root first, then by the oldest touch. It bets that the
/// beginnings of prompts are shared and their ends are not, which holds for templates and
/// documents; of long conversations it keeps the stumps.
///
/// The order is the length-aware eviction of the Mooncake project's cache simulations (Qin et al.:
/// Mooncake, FAST 2025). Times count granted requests and publications. Complexity: O(log n)
/// amortised for each page evicted and each call, O(d) a request of d nodes. Never throws, never
/// allocates.
class LengthAware : public detail::LeafOrder<LengthAware, detail::FewestTouchesThenDeepestFirst> {
  public:
    LengthAware() = default;
    static constexpr bool depth_counts = true;
};

}  // namespace kvstem
