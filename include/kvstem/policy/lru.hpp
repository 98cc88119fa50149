// SPDX-License-Identifier: MIT
// Least recently used, leaves first: the default eviction order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../audit.hpp"
#include "../config.hpp"
#include "../radix_tree.hpp"

namespace kvstem::inline KVSTEM_ABI {

/// Evicts what was released the longest ago. Exactly: a node's recency is the moment its last lease
/// let go of it; of one path the deepest node goes first; equal recency cannot occur otherwise.
///
/// The order is one list through the unpinned nodes, in which every node stands before (is older
/// than) its ancestors:
///
///     oldest ─ [3 4] ─ [7 8] ─ [1 2] ─ newest          [1 2] is the parent of [3 4]
///
/// It holds because a release appends the leaf first and then goes upwards, and because a split
/// puts the upper part right behind the lower one. So the oldest node is always a leaf, and neither
/// a heap nor a clock is needed. Complexity: every call O(1). Never throws.
struct LeastRecentlyUsed {
    /// The neighbours in the list; while the node is pinned they mean nothing.
    struct NodeData {
        NodeId older = no_node;
        NodeId newer = no_node;
    };

    /// A node lost its last pin, or an upper part of it did.
    template <class Nodes>
    void unpinned(Nodes& nodes, NodeId node) noexcept {
        insert_behind(nodes, newest_, node);
    }
    /// A node got its first pin.
    template <class Nodes>
    void pinned(Nodes& nodes, NodeId node) noexcept {
        unlink(nodes, node);
    }
    using PinsInTurn = LeastRecentlyUsed;  // so that paths are pinned by the two calls below
    /// The same for one node of a path after the other, each the parent of the one before. What was
    /// released together stands side by side in the list, and is taken out as one piece.
    template <class Nodes>
    void pinned_in_turn(Nodes& nodes, NodeId node) noexcept {
        if (leaving_ == no_node || nodes.order(leaving_).newer != node) {
            pinned_all(nodes);
            before_leaving_ = nodes.order(node).older;
        }
        leaving_ = node;
    }
    /// That was all of the path.
    template <class Nodes>
    void pinned_all(Nodes& nodes) noexcept {
        if (leaving_ == no_node) return;
        link(nodes, before_leaving_, nodes.order(leaving_).newer);
        leaving_ = no_node;
    }
    /// An unpinned node was cut in two; `upper` is new and carries a copy of the data of `lower`.
    template <class Nodes>
    void split(Nodes& nodes, NodeId upper, NodeId lower) noexcept {
        insert_behind(nodes, lower, upper);
    }
    /// An unpinned node is about to be removed.
    template <class Nodes>
    void removed(Nodes& nodes, NodeId node) noexcept {
        unlink(nodes, node);
    }
    /// The leaf to evict from next; no_node if nothing is unpinned.
    template <class Nodes>
    [[nodiscard]] NodeId victim(Nodes&) const noexcept {
        return oldest_;
    }

    /// The leaf that will most likely be the victim after a given one.
    template <class Nodes>
    [[nodiscard]] NodeId victim_after(Nodes& nodes, NodeId victim) const noexcept {
        return nodes.order(victim).newer;
    }

    /// Whether the list holds each of `unpinned` nodes once, and every node before its ancestors.
    template <class Nodes>
    void audit(Nodes& nodes, AuditReport& report, std::size_t unpinned) const {
        std::vector<bool> passed;
        std::size_t count = 0;
        NodeId older = no_node;
        for (NodeId node = oldest_; node != no_node && count <= unpinned; ++count) {
            const auto subject = static_cast<std::uint64_t>(node);
            const auto above = static_cast<std::size_t>(nodes.parent(node));
            report.require(nodes.order(node).older == older, "LRU: a node is linked one way only",
                           subject);
            report.require(!nodes.is_pinned(node), "LRU: a pinned node can be evicted", subject);
            report.require(above >= passed.size() || !passed[above],
                           "LRU: a node stands behind its ancestor", subject);
            if (passed.size() <= subject) passed.resize(static_cast<std::size_t>(subject) + 1);
            passed[static_cast<std::size_t>(subject)] = true;
            older = node;
            node = nodes.order(node).newer;
        }
        report.require(older == newest_ && count == unpinned,
                       "LRU: the list is not all unpinned nodes", count);
    }

  private:
    template <class Nodes>
    void insert_behind(Nodes& nodes, NodeId before, NodeId node) noexcept {
        const NodeId after = before == no_node ? oldest_ : nodes.order(before).newer;
        nodes.order(node) = {before, after};
        (before == no_node ? oldest_ : nodes.order(before).newer) = node;
        (after == no_node ? newest_ : nodes.order(after).older) = node;
    }
    template <class Nodes>
    void unlink(Nodes& nodes, NodeId node) noexcept {
        // Read one by one: the neighbour unlinked just before wrote half of this node's links, and
        // a load of both halves at once would have to wait until that store has left the core.
        const NodeId older = nodes.order(node).older;
        link(nodes, older, nodes.order(node).newer);
    }
    template <class Nodes>
    void link(Nodes& nodes, NodeId older, NodeId newer) noexcept {
        (older == no_node ? oldest_ : nodes.order(older).newer) = newer;
        (newer == no_node ? newest_ : nodes.order(newer).older) = older;
    }

    NodeId oldest_ = no_node;
    NodeId newest_ = no_node;
    // Of nodes being pinned in turn: the newest of those that still have to be taken out of the
    // list, side by side, and the node before the oldest of them.
    NodeId leaving_ = no_node;
    NodeId before_leaving_ = no_node;
};

}  // namespace kvstem
