// SPDX-License-Identifier: MIT
// What policies have in common that order leaves by when and how often they were used.
#pragma once

#include <cstdint>

#include "../config.hpp"
#include "../policy/leaf_heap.hpp"
#include "../radix_tree.hpp"

namespace kvstem::inline KVSTEM_ABI::detail {

/// What is known of a node's pages. Times count granted requests and publications, so that no two
/// leaves have the same.
struct LeafHistory {
    std::uint64_t inserted = 0;  // when they were published
    std::uint64_t touched = 0;   // when they were published or last adopted
    std::uint64_t value = 0;     // what a policy adds of its own
    std::uint32_t touches = 0;   // how often they were adopted since they were published
    std::uint32_t depth = 0;     // of the last page: pages from the root to it
    HeapLinks heap;
};

/// Keeps the histories and a heap of the unpinned leaves. `Order::before(a, b)` says which of two
/// histories goes first; `Derived` may add `note_touch(history)`, `note_victim(history)`, and
/// `static constexpr bool depth_counts` where the order asks for the depth before the times, so
/// that it has to be asked again after every page.
template <class Derived, class Before>
class LeafOrder {
  public:
    using NodeData = LeafHistory;

    template <class Nodes, class Info>
    void request(Nodes& nodes, const Info& info) noexcept {
        ++now_;
        for (NodeId node = info.node; node != no_node && !nodes.is_root(node);
             node = nodes.parent(node)) {
            NodeData& at = nodes.order(node);
            // The end of the match may be an unpinned leaf, whose place depends on what changes
            // here.
            const bool ordered = at.heap.in_heap();
            if (ordered) leaves_.remove(nodes, node);
            at.touched = now_;
            ++at.touches;
            touch(at);
            if (ordered) leaves_.insert(nodes, node);
        }
    }
    template <class Nodes>
    void inserted(Nodes& nodes, NodeId node) noexcept {
        NodeData& at = nodes.order(node);
        at = {};
        at.inserted = at.touched = ++now_;
        at.depth = nodes.order(nodes.parent(node)).depth + nodes.pages(node);
        touch(at);
    }
    template <class Nodes>
    void unpinned(Nodes& nodes, NodeId node) noexcept {
        if (nodes.is_leaf(node)) leaves_.insert(nodes, node);
    }
    template <class Nodes>
    void became_leaf(Nodes& nodes, NodeId node) noexcept {
        leaves_.insert(nodes, node);
    }
    template <class Nodes>
    void pinned(Nodes& nodes, NodeId node) noexcept {
        removed(nodes, node);
    }
    template <class Nodes>
    void removed(Nodes& nodes, NodeId node) noexcept {
        if (nodes.order(node).heap.in_heap()) leaves_.remove(nodes, node);
    }
    template <class Nodes>
    void split(Nodes& nodes, NodeId upper, NodeId lower) noexcept {
        nodes.order(upper).heap = {};
        nodes.order(upper).depth = nodes.order(lower).depth - nodes.pages(lower);
    }
    template <class Nodes>
    void split_pinned(Nodes& nodes, NodeId upper, NodeId lower) noexcept {
        split(nodes, upper, lower);
    }
    template <class Nodes>
    void trimming(Nodes& nodes, NodeId leaf, std::uint32_t gone) noexcept {
        leaves_.remove(nodes, leaf);
        nodes.order(leaf).depth -= gone;
        leaves_.insert(nodes, leaf);
    }
    template <class Nodes>
    [[nodiscard]] std::uint32_t run(Nodes& nodes, NodeId leaf) const noexcept {
        if constexpr (requires { Derived::depth_counts; }) return 1;
        return nodes.pages(leaf);
    }
    template <class Nodes>
    [[nodiscard]] NodeId victim(Nodes& nodes) noexcept {
        const NodeId leaf = leaves_.top();
        if constexpr (requires(Derived& self, NodeData& at) { self.note_victim(at); }) {
            if (leaf != no_node) static_cast<Derived&>(*this).note_victim(nodes.order(leaf));
        }
        return leaf;
    }

  private:
    friend Derived;
    LeafOrder() = default;

    struct Order {
        static bool before(const NodeData& a, const NodeData& b) noexcept { return Before{}(a, b); }
        static HeapLinks& links(NodeData& at) noexcept { return at.heap; }
    };

    void touch([[maybe_unused]] NodeData& at) noexcept {
        if constexpr (requires(Derived& self) { self.note_touch(at); }) {
            static_cast<Derived&>(*this).note_touch(at);
        }
    }

    std::uint64_t now_ = 0;
    LeafHeap<Order> leaves_;
};

/// Of leaves that are equal otherwise: the one that was touched the longest ago, then the deepest.
inline bool older_or_deeper(const LeafHistory& a, const LeafHistory& b) noexcept {
    if (a.touched != b.touched) return a.touched < b.touched;
    return a.depth > b.depth;
}

}  // namespace kvstem
