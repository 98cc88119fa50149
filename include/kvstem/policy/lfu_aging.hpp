// SPDX-License-Identifier: MIT
// Least frequently used with ageing, leaves first.
#pragma once

#include <cstdint>

#include "../config.hpp"
#include "../detail/leaf_order.hpp"

namespace kvstem::inline KVSTEM_ABI {

namespace detail {
struct LowestValueFirst {
    bool operator()(const LeafHistory& a, const LeafHistory& b) const noexcept {
        if (a.value != b.value) return a.value < b.value;
        return older_or_deeper(a, b);
    }
};
}  // namespace detail

/// Evicts the leaf of the lowest value; equal values go by the oldest touch, then the deepest page
/// first. A page's value is set when it is published or adopted: the value of the leaf evicted
/// last, plus one, plus how often it was adopted since it was published. So the past counts, and a
/// page that is not used any more is caught up with, sooner or later.
///
/// The method is LFU with dynamic aging (Arlitt, Cherkasova, Dilley, Friedrich, Jin: Evaluating
/// content management techniques for Web proxy caches, 1999), adapted to leaves. Times count
/// granted requests and publications. Complexity: O(log n) amortised a call, O(d) a request of d
/// nodes. Never throws, never allocates.
class FrequencyWithAgeing
    : public detail::LeafOrder<FrequencyWithAgeing, detail::LowestValueFirst> {
  public:
    void note_touch(NodeData& at) const noexcept { at.value = floor_ + 1 + at.touches; }
    void note_victim(const NodeData& at) noexcept { floor_ = at.value; }

  private:
    std::uint64_t floor_ = 0;
};

}  // namespace kvstem
