// SPDX-License-Identifier: MIT
// Priorities for a time: what the caller wants kept, then recency.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include "../config.hpp"
#include "../errors.hpp"
#include "../radix_tree.hpp"
#include "../token.hpp"
#include "leaf_heap.hpp"
#include "policy.hpp"

namespace kvstem::inline KVSTEM_ABI {

/// The clock that PriorityThenRecency has unless it is given one: granted requests.
struct CountRequests {};

/// Evicts by the caller's priorities: the leaf of the lowest priority goes first; equal priorities
/// go by the oldest touch (published or adopted), then the deepest page.
///
/// A page has the priority 35 unless a request that publishes or adopts it covers its first token
/// with a Retention: then it has that one, until `duration` ticks have passed since the request was
/// granted, and 35 again from then on. The latest request that says something of a page counts.
///
/// `Clock` is any callable that returns ticks as std::uint64_t and never goes back, such as a
/// lambda that reads the engine's milliseconds; it must not throw. With CountRequests a tick is a
/// granted request.
///
/// Token ranges with a priority and a duration are those of the KV cache retention in NVIDIA's
/// TensorRT-LLM, from which the default of 35 is taken too. Complexity: O(log n) amortised a call;
/// O(d) a request of d nodes, and O(pages) if it has retentions. Memory: 16 bytes a page, from
/// `attach`. Exceptions: `attach` and `request` throw std::bad_alloc; `request` throws
/// InvalidArgument for a priority above 100; nothing has changed then.
template <class Clock = CountRequests>
class PriorityThenRecency {
  public:
    static constexpr std::uint8_t default_priority = 35;

    /// What the node's last page is ordered by: of a node, that one goes first.
    struct NodeData {
        std::uint64_t touched = 0;
        std::uint64_t until = Retention::for_ever;  // of the last page, as the two below
        std::uint32_t depth = 0;
        std::uint8_t priority = default_priority;
        HeapLinks heap;
        HeapLinks expiry;
    };
    /// What a lease's request wants for the pages it will publish.
    struct RequestData {
        std::vector<Retention> wanted{};  // with `duration` replaced by the time of the end
    };

    PriorityThenRecency() = default;
    explicit PriorityThenRecency(Clock clock) : clock_(clock) {}

    void attach(std::size_t capacity_pages) { pages_.resize(capacity_pages); }

    template <class Nodes, class Info>
    void request(Nodes& nodes, const Info& info, RequestData& data) {
        for (const Retention& retention : info.hints.retention) {
            if (retention.priority > 100) {
                detail::fail<InvalidArgument>("priority %u is above 100",
                                              unsigned{retention.priority});
            }
        }
        data.wanted.assign(info.hints.retention.begin(), info.hints.retention.end());
        ++requests_;
        ++clock_of_touches_;
        const std::uint64_t now = this->now();
        for (Retention& retention : data.wanted) {
            const bool ends = retention.duration < Retention::for_ever - now;
            retention.duration = ends ? now + retention.duration : Retention::for_ever;
        }
        for (NodeId node = info.node; node != no_node && !nodes.is_root(node);
             node = nodes.parent(node)) {
            const bool ordered = nodes.order(node).heap.in_heap();
            if (ordered) take_out(nodes, node);
            nodes.order(node).touched = clock_of_touches_;
            retain(nodes, node, info.page_tokens, data);
            if (ordered) put(nodes, node, 0);
        }
    }
    template <class Nodes>
    void inserted(Nodes& nodes, NodeId node, const RequestData& data) noexcept {
        const auto pages = nodes.page_ids(node);
        NodeData& at = nodes.order(node);
        at = {};
        at.touched = ++clock_of_touches_;
        at.depth = nodes.order(nodes.parent(node)).depth + nodes.pages(node);
        for (const PageId page : pages) pages_[index_of(page)] = {};
        retain(nodes, node, nodes.tokens(node).size() / pages.size(), data);
    }
    template <class Nodes>
    void unpinned(Nodes& nodes, NodeId node) noexcept {
        if (nodes.is_leaf(node)) put(nodes, node, 0);
    }
    template <class Nodes>
    void became_leaf(Nodes& nodes, NodeId node) noexcept {
        put(nodes, node, 0);
    }
    template <class Nodes>
    void pinned(Nodes& nodes, NodeId node) noexcept {
        if (nodes.order(node).heap.in_heap()) take_out(nodes, node);
    }
    template <class Nodes>
    void removed(Nodes& nodes, NodeId node) noexcept {
        pinned(nodes, node);
    }
    template <class Nodes>
    void split(Nodes& nodes, NodeId upper, NodeId lower) noexcept {
        nodes.order(upper).heap = {};
        nodes.order(upper).expiry = {};
        nodes.order(upper).depth = nodes.order(lower).depth - nodes.pages(lower);
    }
    template <class Nodes>
    void split_pinned(Nodes& nodes, NodeId upper, NodeId lower) noexcept {
        split(nodes, upper, lower);
    }
    template <class Nodes>
    void trimming(Nodes& nodes, NodeId leaf, std::uint32_t gone) noexcept {
        take_out(nodes, leaf);
        nodes.order(leaf).depth -= gone;
        put(nodes, leaf, gone);
    }
    /// The last pages of one priority.
    template <class Nodes>
    [[nodiscard]] std::uint32_t run(Nodes& nodes, NodeId leaf) const noexcept {
        const auto pages = nodes.page_ids(leaf);
        const std::uint64_t now = this->now();
        const std::uint8_t priority = priority_at(pages.back(), now);
        std::uint32_t run = 1;
        while (run < pages.size() && priority_at(pages[pages.size() - 1 - run], now) == priority) {
            ++run;
        }
        return run;
    }
    template <class Nodes>
    [[nodiscard]] NodeId victim(Nodes& nodes) noexcept {
        const std::uint64_t now = this->now();
        while (!expiring_.empty() && nodes.order(expiring_.top()).until <= now) {
            const NodeId leaf = expiring_.top();
            take_out(nodes, leaf);
            put(nodes, leaf, 0);
        }
        return leaves_.top();
    }

  private:
    struct Page {
        std::uint64_t until = Retention::for_ever;
        std::uint8_t priority = default_priority;
    };
    struct LowestPriorityFirst {
        static bool before(const NodeData& a, const NodeData& b) noexcept {
            if (a.priority != b.priority) return a.priority < b.priority;
            if (a.touched != b.touched) return a.touched < b.touched;
            return a.depth > b.depth;
        }
        static HeapLinks& links(NodeData& at) noexcept { return at.heap; }
    };
    struct FirstToExpireFirst {
        static bool before(const NodeData& a, const NodeData& b) noexcept {
            return a.until < b.until;
        }
        static HeapLinks& links(NodeData& at) noexcept { return at.expiry; }
    };

    [[nodiscard]] std::uint64_t now() const noexcept {
        if constexpr (std::is_same_v<Clock, CountRequests>)
            return requests_;
        else
            return clock_();
    }
    [[nodiscard]] std::uint8_t priority_at(PageId page, std::uint64_t now) const noexcept {
        const Page& at = pages_[index_of(page)];
        return at.until <= now ? default_priority : at.priority;
    }
    /// Notes what a request wants for the pages of a node.
    template <class Nodes>
    void retain(Nodes& nodes, NodeId node, std::size_t page_tokens,
                const RequestData& data) noexcept {
        if (data.wanted.empty()) return;
        const auto pages = nodes.page_ids(node);
        const std::size_t begin = nodes.order(node).depth - pages.size();
        for (std::size_t i = 0; i < pages.size(); ++i) {
            const std::size_t token = (begin + i) * page_tokens;
            for (const Retention& retention : data.wanted) {
                if (token < retention.first_token || token >= retention.end_token) continue;
                pages_[index_of(pages[i])] = {retention.duration, retention.priority};
            }
        }
    }
    template <class Nodes>
    void put(Nodes& nodes, NodeId leaf, std::uint32_t gone) noexcept {
        const auto pages = nodes.page_ids(leaf);
        const PageId tail = pages[pages.size() - 1 - gone];
        const std::uint64_t now = this->now();
        NodeData& at = nodes.order(leaf);
        at.priority = priority_at(tail, now);
        at.until = pages_[index_of(tail)].until;
        leaves_.insert(nodes, leaf);
        if (at.until != Retention::for_ever && at.until > now) expiring_.insert(nodes, leaf);
    }
    template <class Nodes>
    void take_out(Nodes& nodes, NodeId leaf) noexcept {
        leaves_.remove(nodes, leaf);
        if (nodes.order(leaf).expiry.in_heap()) expiring_.remove(nodes, leaf);
    }

    [[no_unique_address]] Clock clock_{};
    std::vector<Page> pages_;  // by PageId
    std::uint64_t requests_ = 0;
    std::uint64_t clock_of_touches_ = 0;  // granted requests and publications
    LeafHeap<LowestPriorityFirst> leaves_;
    LeafHeap<FirstToExpireFirst> expiring_;
};

}  // namespace kvstem
