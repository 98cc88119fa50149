// SPDX-License-Identifier: MIT
// First in, first out, leaves first.
#pragma once

#include "../config.hpp"
#include "../detail/leaf_order.hpp"

namespace kvstem::inline KVSTEM_ABI {

namespace detail {
struct OldestInsertionFirst {
    bool operator()(const LeafHistory& a, const LeafHistory& b) const noexcept {
        if (a.inserted != b.inserted) return a.inserted < b.inserted;
        return a.depth > b.depth;
    }
};
}  // namespace detail

/// Evicts the leaf that was published the longest ago, whatever was adopted since; of one
/// publication the deepest page goes first. A parent was published no later than its children, so a
/// page that is used again and again still goes as soon as its last child has gone: that is what it
/// is worse in than LeastRecentlyUsed, and the yardstick for what recency brings.
///
/// Times count granted requests and publications. Complexity: O(log n) amortised a call, O(d) a
/// request of d nodes. Never throws, never allocates.
class FirstInFirstOut : public detail::LeafOrder<FirstInFirstOut, detail::OldestInsertionFirst> {
  public:
    FirstInFirstOut() = default;
};

}  // namespace kvstem
