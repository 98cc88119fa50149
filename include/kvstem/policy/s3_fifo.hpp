// SPDX-License-Identifier: MIT
// S3-FIFO adapted to leaves: a small queue for what is new, a main one, and a memory of what went.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "../config.hpp"
#include "../detail/key_fifo.hpp"
#include "../detail/path_keys.hpp"
#include "../radix_tree.hpp"
#include "../token.hpp"
#include "leaf_heap.hpp"

namespace kvstem::inline KVSTEM_ABI {

/// Evicts what is used once soon after it came, and gives the rest a second chance. Exactly:
///
///   - Pages that are published go to the small queue; leading ones that the ghost queue knows go
///     to the main queue instead, and the ghost queue forgets them. Published together, they are a
///     run: they have one place in time, and one count, 0 at first. Runs are cut where paths part
///     and where an adoption ends.
///   - Adopting a run adds 1 to its count, up to 3.
///   - To evict, the leaf with the oldest place is looked at: of the small queue while that has a
///     tenth of the capacity or more, otherwise of the main one; of the other where one has no
///     leaf.
///       small: with a count above 1 its run moves to the main queue, as the newest, with a count
///              of 0; otherwise its last pages that are in the small queue are evicted, and the
///              ghost queue remembers them.
///       main:  with a count above 0 its run becomes the newest and counts one less; otherwise
///              evicted.
///     This goes on until something is evicted. Equal places go by the deepest.
///   - The ghost queue has as many pages as the cache, first in, first out.
///
/// The method is S3-FIFO (Yang, Zhang, Qiu, Yue, Rashmi: FIFO queues are all you need for cache
/// eviction, SOSP 2023). Complexity: O(log n) amortised a call and a touch, O(d) a request of d
/// nodes. Memory: 8 bytes a page, 16 to 24 for its ghost, taken by `attach`, which throws
/// std::bad_alloc; all else never throws.
class S3Fifo {
  public:
    /// The pages of a node have one place in time and one count.
    struct NodeData {
        std::uint64_t place = 0;       // in time; for a root: the namespace's key
        std::uint32_t depth = 0;       // of the last page
        std::uint32_t main_pages = 0;  // leading pages that are in the main queue
        std::uint8_t count = 0;
        bool tail_is_main = false;  // as long as it is in a heap
        HeapLinks heap;
    };

    void attach(std::size_t capacity_pages) {
        keys_.resize(capacity_pages);
        ghosts_ = detail::KeyFifo(capacity_pages);
        small_target_ = capacity_pages / 10;
    }

    template <class Nodes, class Info>
    void request(Nodes& nodes, const Info& info) noexcept {
        nodes.order(info.root).place = detail::namespace_key(info.name);
        for (NodeId node = info.node; node != no_node && !nodes.is_root(node);
             node = nodes.parent(node)) {
            std::uint8_t& count = nodes.order(node).count;
            if (count < most_counted) ++count;
        }
    }
    template <class Nodes>
    void inserted(Nodes& nodes, NodeId node) noexcept {
        const NodeId above = nodes.parent(node);
        const bool below_root = nodes.is_root(above);
        const auto pages = nodes.page_ids(node);
        const auto tokens = nodes.tokens(node);
        const std::size_t page_tokens = tokens.size() / pages.size();
        std::uint64_t key =
            below_root ? nodes.order(above).place : keys_[index_of(nodes.page_ids(above).back())];
        NodeData& at = nodes.order(node);
        at = {};
        at.place = ++clock_;
        at.depth = (below_root ? 0 : nodes.order(above).depth) + nodes.pages(node);
        bool known = true;
        for (std::size_t i = 0; i < pages.size(); ++i) {
            key = detail::next_key(key, tokens.data() + i * page_tokens, page_tokens);
            keys_[index_of(pages[i])] = key;
            const bool was_ghost = ghosts_.take(key);
            known = known && was_ghost;
            if (known) ++at.main_pages;
        }
        small_ += nodes.pages(node) - at.main_pages;
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
        if (nodes.order(node).heap.in_heap()) take_out(nodes, node);
    }
    template <class Nodes>
    void removed(Nodes& nodes, NodeId node) noexcept {
        pinned(nodes, node);
        if (node == victim_) remember(nodes, node, nodes.pages(node));
        victim_ = no_node;
        detached(nodes, node);
    }
    template <class Nodes>
    void detached(Nodes& nodes, NodeId node) noexcept {
        NodeData& at = nodes.order(node);
        small_ -= nodes.pages(node) - at.main_pages;
        at.main_pages = nodes.pages(node);
    }
    template <class Nodes>
    void split(Nodes& nodes, NodeId upper, NodeId lower) noexcept {
        NodeData& above = nodes.order(upper);
        NodeData& below = nodes.order(lower);
        above.heap = {};
        above.depth = below.depth - nodes.pages(lower);
        above.main_pages = std::min(below.main_pages, nodes.pages(upper));
        below.main_pages -= above.main_pages;
    }
    template <class Nodes>
    void split_pinned(Nodes& nodes, NodeId upper, NodeId lower) noexcept {
        split(nodes, upper, lower);
    }
    template <class Nodes>
    void joined(Nodes& nodes, NodeId upper, NodeId lower) noexcept {
        nodes.order(lower).main_pages += nodes.order(upper).main_pages;
    }
    template <class Nodes>
    void trimming(Nodes& nodes, NodeId leaf, std::uint32_t gone) noexcept {
        NodeData& at = nodes.order(leaf);
        take_out(nodes, leaf);
        remember(nodes, leaf, gone);
        victim_ = no_node;
        const std::uint32_t left = nodes.pages(leaf) - gone;
        // `run` never lets pages of both queues go at once.
        if (at.main_pages > left) {
            at.main_pages = left;
        } else {
            small_ -= gone;
        }
        at.depth -= gone;
        put(nodes, leaf, left);
    }
    template <class Nodes>
    [[nodiscard]] std::uint32_t run(Nodes& nodes, NodeId leaf) const noexcept {
        const NodeData& at = nodes.order(leaf);
        return at.tail_is_main ? nodes.pages(leaf) : nodes.pages(leaf) - at.main_pages;
    }
    template <class Nodes>
    [[nodiscard]] NodeId victim(Nodes& nodes) noexcept {
        while (true) {
            const bool from_small =
                main_leaves_.empty() || (small_ >= small_target_ && !small_leaves_.empty());
            const NodeId leaf = from_small ? small_leaves_.top() : main_leaves_.top();
            victim_ = leaf;
            if (leaf == no_node) return no_node;
            NodeData& at = nodes.order(leaf);
            if (at.count <= (from_small ? 1 : 0)) return leaf;
            take_out(nodes, leaf);
            at.place = ++clock_;
            if (from_small) {
                small_ -= nodes.pages(leaf) - at.main_pages;
                at.main_pages = nodes.pages(leaf);
                at.count = 0;
            } else {
                --at.count;
            }
            put(nodes, leaf, nodes.pages(leaf));
        }
    }

    [[nodiscard]] std::size_t small_pages() const noexcept { return small_; }

  private:
    static constexpr std::uint8_t most_counted = 3;

    struct OldestFirst {
        static bool before(const NodeData& a, const NodeData& b) noexcept {
            if (a.place != b.place) return a.place < b.place;
            return a.depth > b.depth;
        }
        static HeapLinks& links(NodeData& at) noexcept { return at.heap; }
    };
    using Heap = LeafHeap<OldestFirst>;

    template <class Nodes>
    void put(Nodes& nodes, NodeId leaf, std::uint32_t pages) noexcept {
        NodeData& at = nodes.order(leaf);
        at.tail_is_main = at.main_pages == pages;
        (at.tail_is_main ? main_leaves_ : small_leaves_).insert(nodes, leaf);
    }
    template <class Nodes>
    void take_out(Nodes& nodes, NodeId leaf) noexcept {
        (nodes.order(leaf).tail_is_main ? main_leaves_ : small_leaves_).remove(nodes, leaf);
    }
    /// The last `gone` pages are evicted: those of the small queue become ghosts, the deepest
    /// first.
    template <class Nodes>
    void remember(Nodes& nodes, NodeId node, std::uint32_t gone) noexcept {
        const auto pages = nodes.page_ids(node);
        for (std::size_t i = pages.size(); i > pages.size() - gone; --i) {
            if (i <= nodes.order(node).main_pages) return;
            ghosts_.add(keys_[index_of(pages[i - 1])]);
        }
    }

    std::vector<std::uint64_t> keys_;  // by PageId
    detail::KeyFifo ghosts_;
    std::uint64_t clock_ = 0;
    std::size_t small_target_ = 0;
    std::size_t small_ = 0;  // pages in the small queue
    NodeId victim_ = no_node;
    Heap small_leaves_;
    Heap main_leaves_;
};

}  // namespace kvstem
