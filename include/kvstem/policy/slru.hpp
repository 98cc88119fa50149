// SPDX-License-Identifier: MIT
// Segmented least recently used, leaves first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "../config.hpp"
#include "../radix_tree.hpp"
#include "leaf_heap.hpp"

namespace kvstem::inline KVSTEM_ABI {

/// Evicts pages that were never adopted before pages that were. Exactly: a page is on probation
/// when it is published, and protected when it is adopted. At most 4/5 of the capacity is
/// protected: beyond that, the protected page that was touched the longest ago (of one path the
/// deepest) goes back on probation and keeps its time. The victim is the leaf on probation that was
/// touched the longest ago, or, if there is none, the protected one; equal times go by the deepest.
///
/// The method is the segmented LRU of disk caches (Karedla, Love, Wherry: Caching strategies to
/// improve disk system performance, 1994), adapted to leaves. Times count granted requests and
/// publications. Complexity: O(log n) amortised a call, O(d) a request of d nodes. Never throws,
/// never allocates.
class SegmentedLru {
  public:
    /// A node may be protected in part: adopting protects pages from the front.
    struct NodeData {
        std::uint64_t touched = 0;
        std::uint32_t depth = 0;         // of the last page
        std::uint32_t kept = 0;          // leading pages that are protected
        bool tail_is_protected = false;  // as long as it is in the heap
        NodeId older = no_node;          // protected nodes by time; set while kept != 0
        NodeId newer = no_node;
        HeapLinks heap;
    };

    void attach(std::size_t capacity_pages) noexcept { most_protected_ = capacity_pages / 5 * 4; }

    template <class Nodes, class Info>
    void request(Nodes& nodes, const Info& info) noexcept {
        ++now_;
        for (NodeId node = info.node; node != no_node && !nodes.is_root(node);
             node = nodes.parent(node)) {
            NodeData& at = nodes.order(node);
            const bool ordered = take_out(nodes, node);
            unprotect(nodes, node, at.kept);
            at.touched = now_;
            at.kept = nodes.pages(node);
            protected_ += at.kept;
            link(nodes, newest_, node);
            if (ordered) put(nodes, node, at.kept);
        }
        while (protected_ > most_protected_) {
            const NodeId node = oldest_;
            NodeData& at = nodes.order(node);
            const bool ordered = take_out(nodes, node);
            const std::size_t excess = protected_ - most_protected_;
            unprotect(nodes, node,
                      static_cast<std::uint32_t>(std::min<std::size_t>(excess, at.kept)));
            if (ordered) put(nodes, node, nodes.pages(node));
        }
    }
    template <class Nodes>
    void inserted(Nodes& nodes, NodeId node) noexcept {
        NodeData& at = nodes.order(node);
        at = {};
        at.touched = ++now_;
        at.depth = nodes.order(nodes.parent(node)).depth + nodes.pages(node);
    }
    template <class Nodes>
    void unpinned(Nodes& nodes, NodeId node) noexcept {
        if (nodes.is_leaf(node)) put(nodes, node, nodes.pages(node));
    }
    template <class Nodes>
    void became_leaf(Nodes& nodes, NodeId node) noexcept {
        put(nodes, node, nodes.pages(node));
    }
    template <class Nodes>
    void pinned(Nodes& nodes, NodeId node) noexcept {
        take_out(nodes, node);
    }
    template <class Nodes>
    void removed(Nodes& nodes, NodeId node) noexcept {
        take_out(nodes, node);
        detached(nodes, node);
    }
    template <class Nodes>
    void detached(Nodes& nodes, NodeId node) noexcept {
        unprotect(nodes, node, nodes.order(node).kept);
    }
    template <class Nodes>
    void split(Nodes& nodes, NodeId upper, NodeId lower) noexcept {
        NodeData& above = nodes.order(upper);
        NodeData& below = nodes.order(lower);
        above.heap = {};
        above.depth = below.depth - nodes.pages(lower);
        above.kept = std::min(below.kept, nodes.pages(upper));
        if (above.kept == 0) return;
        link(nodes, lower, upper);
        below.kept -= above.kept;
        if (below.kept == 0) unlink(nodes, lower);
    }
    template <class Nodes>
    void split_pinned(Nodes& nodes, NodeId upper, NodeId lower) noexcept {
        split(nodes, upper, lower);
    }
    template <class Nodes>
    void joined(Nodes& nodes, NodeId upper, NodeId lower) noexcept {
        const std::uint32_t kept = nodes.order(upper).kept;
        if (kept == 0) return;
        if (nodes.order(lower).kept == 0) link(nodes, upper, lower);
        nodes.order(lower).kept += kept;
        unlink(nodes, upper);
    }
    template <class Nodes>
    void trimming(Nodes& nodes, NodeId leaf, std::uint32_t gone) noexcept {
        NodeData& at = nodes.order(leaf);
        const std::uint32_t left = nodes.pages(leaf) - gone;
        take_out(nodes, leaf);
        if (at.kept > left) unprotect(nodes, leaf, at.kept - left);
        at.depth -= gone;
        put(nodes, leaf, left);
    }
    template <class Nodes>
    [[nodiscard]] std::uint32_t run(Nodes& nodes, NodeId leaf) const noexcept {
        const NodeData& at = nodes.order(leaf);
        return at.tail_is_protected ? nodes.pages(leaf) : nodes.pages(leaf) - at.kept;
    }
    template <class Nodes>
    [[nodiscard]] NodeId victim(Nodes&) const noexcept {
        return leaves_.top();
    }

    [[nodiscard]] std::size_t protected_pages() const noexcept { return protected_; }

  private:
    struct ProbationThenOldest {
        static bool before(const NodeData& a, const NodeData& b) noexcept {
            if (a.tail_is_protected != b.tail_is_protected) return b.tail_is_protected;
            if (a.touched != b.touched) return a.touched < b.touched;
            return a.depth > b.depth;
        }
        static HeapLinks& links(NodeData& at) noexcept { return at.heap; }
    };

    template <class Nodes>
    void put(Nodes& nodes, NodeId leaf, std::uint32_t pages) noexcept {
        NodeData& at = nodes.order(leaf);
        at.tail_is_protected = at.kept == pages;
        leaves_.insert(nodes, leaf);
    }
    /// Whether it was in the heap.
    template <class Nodes>
    bool take_out(Nodes& nodes, NodeId node) noexcept {
        if (!nodes.order(node).heap.in_heap()) return false;
        leaves_.remove(nodes, node);
        return true;
    }
    /// The last `pages` of the protected pages of a node go back on probation.
    template <class Nodes>
    void unprotect(Nodes& nodes, NodeId node, std::uint32_t pages) noexcept {
        if (pages == 0) return;
        NodeData& at = nodes.order(node);
        at.kept -= pages;
        protected_ -= pages;
        if (at.kept == 0) unlink(nodes, node);
    }
    /// Puts a node right behind `before` in the list from oldest to newest.
    template <class Nodes>
    void link(Nodes& nodes, NodeId before, NodeId node) noexcept {
        const NodeId after = before == no_node ? oldest_ : nodes.order(before).newer;
        nodes.order(node).older = before;
        nodes.order(node).newer = after;
        (before == no_node ? oldest_ : nodes.order(before).newer) = node;
        (after == no_node ? newest_ : nodes.order(after).older) = node;
    }
    template <class Nodes>
    void unlink(Nodes& nodes, NodeId node) noexcept {
        const NodeData& at = nodes.order(node);
        (at.older == no_node ? oldest_ : nodes.order(at.older).newer) = at.newer;
        (at.newer == no_node ? newest_ : nodes.order(at.newer).older) = at.older;
    }

    std::uint64_t now_ = 0;
    std::size_t most_protected_ = 0;
    std::size_t protected_ = 0;
    NodeId oldest_ = no_node;
    NodeId newest_ = no_node;
    LeafHeap<ProbationThenOldest> leaves_;
};

}  // namespace kvstem
