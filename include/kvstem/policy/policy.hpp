// SPDX-License-Identifier: MIT
// What an eviction policy is, what it is told, and what a request may tell it.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "../config.hpp"
#include "../namespace.hpp"
#include "../radix_tree.hpp"
#include "../token.hpp"

namespace kvstem::inline KVSTEM_ABI {

/// How long a part of a prompt is worth keeping, in the caller's opinion. Read by policies that
/// state that they do (PriorityThenRecency); all others ignore it.
struct Retention {
    static constexpr std::uint64_t for_ever = ~std::uint64_t{0};

    std::size_t first_token = 0;
    std::size_t end_token = ~std::size_t{0};  ///< one past the last; answers come after the prompt
    std::uint8_t priority = 35;               ///< 0 (goes first) to 100
    std::uint64_t duration = for_ever;  ///< in ticks of the policy's clock, from the request on
};

/// What the caller knows about a request and the cache cannot see. It changes what is evicted,
/// never what is matched.
///
///     cache.acquire(prompt, {}, {.tag = is_chat ? 1u : 0u});
struct RequestHints {
    /// Any small number that tells kinds of requests apart; its meaning is the caller's.
    std::uint32_t tag = 0;
    /// Later entries win where two overlap. Read during the call.
    std::span<const Retention> retention{};
    /// The last page of the prompt stands for less than a whole page. For replays of traces that
    /// count such pages; a cache of its own never publishes one.
    bool partial_tail = false;
};

/// A request that is about to be granted, as a policy sees it.
template <class T>
struct RequestInfo {
    /// All whole pages that the prompt could have adopted: everything but its last token.
    std::span<const T> path{};
    std::size_t page_tokens = 1;
    std::size_t matched_pages = 0;  ///< leading pages of `path` that it does adopt
    NodeId node = no_node;          ///< the node that ends with the last of them; no_node if none
    NodeId root = no_node;          ///< of the namespace's tree; its data is the policy's too
    const Namespace& name;
    const RequestHints& hints;

    [[nodiscard]] std::size_t path_pages() const noexcept { return path.size() / page_tokens; }
};

namespace detail {

/// The tree as a policy sees it: what every call below gets as `nodes`. RadixCache has its own.
template <class NodeData>
struct PolicyNodes {
    NodeData& order(NodeId node) noexcept;            // the policy's own data
    std::uint32_t pages(NodeId node) const noexcept;  // at least 1; 0 for a root
    std::span<const PageId> page_ids(NodeId node) const noexcept;
    std::span<const Token> tokens(NodeId node) const noexcept;  // pages × page_tokens
    NodeId parent(NodeId node) const noexcept;
    bool is_leaf(NodeId node) const noexcept;
    bool is_pinned(NodeId node) const noexcept;
    bool is_root(NodeId node) const noexcept;
};

template <class Policy>
struct RequestDataOf {
    struct Type {};
};
template <class Policy>
    requires requires { typename Policy::RequestData; }
struct RequestDataOf<Policy> {
    using Type = typename Policy::RequestData;
};

}  // namespace detail

/// An order of eviction (E6). RadixCache tells it what happens to nodes and asks it for victims; it
/// owns the order and nothing else. A node is a run of pages that are pinned, matched and split
/// together, so all its pages have been touched by the same requests.
///
/// Required, all noexcept. `nodes` is a handle to the tree, see detail::PolicyNodes:
///
/// | call                         | when                                                          |
/// | ---------------------------- | ------------------------------------------------------------- |
/// | `unpinned(nodes, node)`      | it lost its last pin; of a path the deepest node is told      |
/// |                              | first                                                         |
/// | `pinned(nodes, node)`        | it got its first pin                                          |
/// | `split(nodes, upper, lower)` | an unpinned node was cut in two; `upper` is new and carries a |
/// |                              | copy of the data of `lower`                                   |
/// | `removed(nodes, node)`       | an unpinned leaf is about to go, its pages still readable     |
/// | `victim(nodes)`              | asks for an unpinned leaf to evict from next, or no_node      |
///
/// Optional: a policy without one of these pays nothing for it.
///
/// | call                          | when                                                         |
/// | ----------------------------- | ------------------------------------------------------------ |
/// | `attach(capacity_pages)`      | once, before anything else; may throw                        |
/// | `request(nodes, info)`        | a request will be granted: after its match was found and cut |
/// |                               | at its end, before anything is pinned or evicted. May throw  |
/// |                               | if it has changed nothing                                    |
/// | `reserve(pages)`              | so many pages are about to be published; may throw           |
/// | `inserted(nodes, node)`       | they were: a new node, pinned already                        |
/// | `split_pinned(nodes, …)`      | as `split`, for pinned nodes                                 |
/// | `joined(nodes, upper, lower)` | a split is about to be undone, in place of `removed(upper)`  |
/// | `became_leaf(nodes, node)`    | an unpinned node lost its last child                         |
/// | `run(nodes, leaf)`            | how many pages may go from the tail of that victim before    |
/// |                               | `victim` must be asked again, at least 1; without: all       |
/// | `trimming(nodes, leaf, gone)` | the last `gone` pages of an unpinned leaf are about to go    |
/// | `victim_after(nodes, node)`   | a guess who follows that victim, or no_node; its memory is   |
/// |                               | asked for early. Asked after evictions, also of nodes it     |
/// |                               | named itself: they must be unpinned and alive                |
/// | `audit(nodes, report, n)`     | checks its order over the n unpinned nodes; const, may       |
/// |                               | allocate                                                     |
/// | `detached(nodes, node)`       | a pinned node left the tree by `clear` or `drop`: nothing    |
/// |                               | but `split_pinned` is told of it any more                    |
///
/// A policy that can take nodes out of its order faster together names itself as `PinsInTurn`, and
/// has `pinned_in_turn(nodes, node)` called in place of `pinned`, for nodes of which each is the
/// parent of the one before, and `pinned_all(nodes)` after the last, before any other call; both
/// noexcept. (One that is derived from such a policy does not name itself, so a `pinned` of its own
/// is called.)
///
/// A policy with a type `RequestData` gets one such object for each lease, as the last argument of
/// `request` and of `inserted`; a fork starts with a copy. It must be default-constructible,
/// movable and copyable.
///
/// own_policy.cpp among the examples is a policy written by a user.
template <class Policy>
concept eviction_policy =
    std::movable<Policy> && std::is_trivially_copyable_v<typename Policy::NodeData> &&
    requires(Policy& policy, detail::PolicyNodes<typename Policy::NodeData>& nodes, NodeId node) {
        { policy.unpinned(nodes, node) } noexcept;
        { policy.pinned(nodes, node) } noexcept;
        { policy.split(nodes, node, node) } noexcept;
        { policy.removed(nodes, node) } noexcept;
        { policy.victim(nodes) } noexcept -> std::same_as<NodeId>;
    };

/// What a lease keeps for a policy; empty if the policy wants nothing kept.
template <class Policy>
using request_data = typename detail::RequestDataOf<Policy>::Type;

}  // namespace kvstem
