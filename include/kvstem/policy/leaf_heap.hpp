// SPDX-License-Identifier: MIT
// A heap of leaves whose links lie in the nodes: no memory of its own, so nothing in it can fail.
#pragma once

#include <utility>

#include "../config.hpp"
#include "../radix_tree.hpp"

namespace kvstem::inline KVSTEM_ABI {

/// The links of one node in one heap. `previous` is the sibling before it, its parent if it is the
/// first child, itself if it is the top, and no_node if it is in no heap.
struct HeapLinks {
    NodeId first_child = no_node;
    NodeId next = no_node;
    NodeId previous = no_node;

    [[nodiscard]] bool in_heap() const noexcept { return previous != no_node; }
};

/// What most policies need to find the next victim: the leaf that goes first by some order, under
/// insertion and removal anywhere. A pairing heap (Fredman, Sedgewick, Sleator, Tarjan: The pairing
/// heap, Algorithmica 1, 1986).
///
/// `Order` says which of two nodes goes first, `before(a, b)` on the policy's data, and where the
/// links are, `links(data)`; both static. Keys must not change while a node is in the heap.
/// Complexity: insert, meld, top O(1); remove O(log n) amortised. Never throws, never allocates.
template <class Order>
class LeafHeap {
  public:
    [[nodiscard]] bool empty() const noexcept { return top_ == no_node; }
    /// The first of all; no_node if there is none.
    [[nodiscard]] NodeId top() const noexcept { return top_; }

    /// Requires: not in a heap.
    template <class Nodes>
    void insert(Nodes& nodes, NodeId node) noexcept {
        links(nodes, node) = {};
        set_top(nodes, top_ == no_node ? node : meld(nodes, top_, node));
    }

    /// Requires: in this heap.
    template <class Nodes>
    void remove(Nodes& nodes, NodeId node) noexcept {
        const HeapLinks at = links(nodes, node);
        KVSTEM_ASSERT(at.in_heap());
        const NodeId below = meld_siblings(nodes, at.first_child);
        links(nodes, node) = {};
        if (node == top_) {
            set_top(nodes, below);
            return;
        }
        HeapLinks& before = links(nodes, at.previous);
        (before.first_child == node ? before.first_child : before.next) = at.next;
        if (at.next != no_node) links(nodes, at.next).previous = at.previous;
        if (below != no_node) set_top(nodes, meld(nodes, top_, below));
    }

  private:
    template <class Nodes>
    static HeapLinks& links(Nodes& nodes, NodeId node) noexcept {
        return Order::links(nodes.order(node));
    }
    template <class Nodes>
    void set_top(Nodes& nodes, NodeId node) noexcept {
        top_ = node;
        if (node == no_node) return;
        links(nodes, node).next = no_node;
        links(nodes, node).previous = node;
    }
    /// Two tops become one: the later one is the first child of the other.
    template <class Nodes>
    static NodeId meld(Nodes& nodes, NodeId a, NodeId b) noexcept {
        if (Order::before(nodes.order(b), nodes.order(a))) std::swap(a, b);
        HeapLinks& above = links(nodes, a);
        HeapLinks& below = links(nodes, b);
        below.next = above.first_child;
        below.previous = a;
        if (above.first_child != no_node) links(nodes, above.first_child).previous = b;
        above.first_child = b;
        return a;
    }
    /// Melds siblings in pairs from the first on, and the pairs from the last one back.
    template <class Nodes>
    static NodeId meld_siblings(Nodes& nodes, NodeId first) noexcept {
        NodeId pairs = no_node;  // chained by `previous`
        while (first != no_node) {
            const NodeId second = links(nodes, first).next;
            NodeId rest = no_node;
            NodeId pair = first;
            if (second != no_node) {
                rest = links(nodes, second).next;
                pair = meld(nodes, first, second);
            }
            links(nodes, pair).previous = pairs;
            pairs = pair;
            first = rest;
        }
        NodeId top = no_node;
        while (pairs != no_node) {
            const NodeId next = links(nodes, pairs).previous;
            top = top == no_node ? pairs : meld(nodes, top, pairs);
            pairs = next;
        }
        return top;
    }

    NodeId top_ = no_node;
};

}  // namespace kvstem
