// SPDX-License-Identifier: MIT
// The offline optimum: what an order of eviction could reach that knew the future. For replays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "../config.hpp"
#include "../radix_tree.hpp"
#include "../token.hpp"
#include "leaf_heap.hpp"
#include "policy.hpp"

namespace kvstem::inline KVSTEM_ABI {

/// All requests that will come, as paths of block numbers below `distinct`, a number for each
/// prefix. `path_of(i)` is a span over the path of request i.
class KnownFuture {
  public:
    static constexpr std::uint32_t never = 0xFFFF'FFFFu;

    template <class PathOf>
    KnownFuture(std::size_t requests, std::size_t distinct, PathOf&& path_of)
        : begins_(requests + 1), distinct_(distinct) {
        for (std::size_t i = 0; i < requests; ++i) begins_[i + 1] = begins_[i] + path_of(i).size();
        next_.resize(begins_.back());
        std::vector<std::uint32_t> next(distinct, never);
        for (std::size_t i = requests; i-- > 0;) {
            const std::span<const Token> path = path_of(i);
            for (std::size_t j = 0; j < path.size(); ++j) {
                std::uint32_t& known = next[static_cast<std::size_t>(path[j])];
                next_[begins_[i] + j] = known;
                known = static_cast<std::uint32_t>(i);
            }
        }
    }

    [[nodiscard]] std::size_t distinct_blocks() const noexcept { return distinct_; }
    /// For each block of request i, the next request after it that has the block too.
    [[nodiscard]] std::span<const std::uint32_t> next_uses(std::size_t request) const noexcept {
        return std::span(next_).subspan(begins_[request], begins_[request + 1] - begins_[request]);
    }

  private:
    std::vector<std::size_t> begins_;
    std::vector<std::uint32_t> next_;
    std::size_t distinct_;
};

/// Evicts the leaf whose last page will be used again the furthest in the future, those that never
/// will first. That is the optimum where every request must leave its pages in the cache; with
/// replay::WorkingPages::separate it is the optimum of caches that need not take what they are
/// offered (Belady: A study of replacement algorithms for a virtual-storage computer, 1966).
///
/// Requires: pages of one token, which is the block's number; every request of the future, in order
/// and granted; a future that outlives the policy. Complexity: O(log n) amortised a page evicted.
class OfflineOptimum {
  public:
    /// What the heap of leaves is ordered by.
    struct NodeData {
        std::uint32_t next_use = KnownFuture::never;  // of the last page; set while in the heap
        HeapLinks heap;
    };

    explicit OfflineOptimum(const KnownFuture& future)
        : future_(&future), next_use_(future.distinct_blocks(), KnownFuture::never) {}

    template <class Nodes, class Info>
    void request(Nodes&, const Info& info) noexcept {
        const std::span<const std::uint32_t> next = future_->next_uses(requests_++);
        for (std::size_t i = 0; i < info.path.size(); ++i) {
            next_use_[static_cast<std::size_t>(info.path[i])] = next[i];
        }
    }
    template <class Nodes>
    void unpinned(Nodes& nodes, NodeId node) noexcept {
        if (nodes.is_leaf(node)) insert(nodes, node, 0);
    }
    template <class Nodes>
    void became_leaf(Nodes& nodes, NodeId node) noexcept {
        insert(nodes, node, 0);
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
    void split(Nodes& nodes, NodeId upper, NodeId) noexcept {
        nodes.order(upper) = {};
    }
    template <class Nodes>
    void trimming(Nodes& nodes, NodeId leaf, std::uint32_t gone) noexcept {
        leaves_.remove(nodes, leaf);
        insert(nodes, leaf, gone);
    }
    template <class Nodes>
    [[nodiscard]] NodeId victim(Nodes&) const noexcept {
        return leaves_.top();
    }
    /// The last pages that will all be used again at the same time.
    template <class Nodes>
    [[nodiscard]] std::uint32_t run(Nodes& nodes, NodeId leaf) const noexcept {
        const std::span<const Token> blocks = nodes.tokens(leaf);
        std::uint32_t pages = 1;
        while (pages < blocks.size() && next_use_of(blocks, pages) == next_use_of(blocks, 0)) {
            ++pages;
        }
        return pages;
    }

  private:
    struct FurthestFirst {
        static bool before(const NodeData& a, const NodeData& b) noexcept {
            return a.next_use > b.next_use;
        }
        static HeapLinks& links(NodeData& at) noexcept { return at.heap; }
    };

    [[nodiscard]] std::uint32_t next_use_of(std::span<const Token> blocks,
                                            std::uint32_t from_end) const noexcept {
        return next_use_[static_cast<std::size_t>(blocks[blocks.size() - 1 - from_end])];
    }
    template <class Nodes>
    void insert(Nodes& nodes, NodeId leaf, std::uint32_t gone) noexcept {
        nodes.order(leaf).next_use = next_use_of(nodes.tokens(leaf), gone);
        leaves_.insert(nodes, leaf);
    }

    const KnownFuture* future_;
    std::vector<std::uint32_t> next_use_;  // by block number
    std::size_t requests_ = 0;
    LeafHeap<FurthestFirst> leaves_;
};

}  // namespace kvstem
