// SPDX-License-Identifier: MIT
// RadixCache: reference-counted page groups in a radix tree, handed out as leases.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "audit.hpp"
#include "config.hpp"
#include "detail/namespace_table.hpp"
#include "detail/on_failure.hpp"
#include "detail/page_bits.hpp"
#include "detail/reserve_more.hpp"
#include "errors.hpp"
#include "lease.hpp"
#include "namespace.hpp"
#include "page_pool.hpp"
#include "policy/lru.hpp"
#include "policy/policy.hpp"
#include "radix_tree.hpp"
#include "token.hpp"

namespace kvstem::inline KVSTEM_ABI {

/// Fixed for the life of a cache. How many pages there are is the page source's to say.
struct RadixCacheOptions {
    std::size_t page_tokens = 16;  ///< P: positions per page, the unit of sharing; at least 1
};

/// What `peek` says of a prompt.
struct RadixMatch {
    std::size_t cached_tokens = 0;     ///< leading positions that are in the tree, in whole pages
    std::size_t adoptable_tokens = 0;  ///< of these, what `acquire` would adopt: not the last token
};

/// What `acquire`, `fork` and their like return: a lease, or the reason why there is none.
template <class Lease>
struct Acquired {
    Admission admission = Admission::exhausted;
    Lease lease;

    [[nodiscard]] explicit operator bool() const noexcept {
        return admission == Admission::granted;
    }
};

/// Plain counters and gauges. Counters only grow, also across `clear`.
struct RadixCacheStats {
    std::uint64_t hits = 0;            ///< granted requests that adopted something
    std::uint64_t misses = 0;          ///< granted requests that adopted nothing
    std::uint64_t queried_tokens = 0;  ///< prompts of granted requests = hit_tokens + missed_tokens
    std::uint64_t hit_tokens = 0;      ///< positions adopted
    std::uint64_t missed_tokens = 0;   ///< positions left to compute
    std::uint64_t partial_tokens = 0;  ///< of hit_tokens, those copied from a partially equal page
    std::uint64_t exhausted = 0;       ///< requests for pages that were refused for now
    std::uint64_t never_fits = 0;      ///< … that were refused for good
    std::uint64_t published_pages = 0;  ///< pages that entered the tree
    std::uint64_t duplicate_pages = 0;  ///< pages that were published, but stood there already
    std::uint64_t evicted_pages = 0;
    std::uint64_t dropped_pages = 0;  ///< left the tree by `clear` or `drop`
    std::size_t capacity_pages = 0;   ///< now: what the page source has
    std::size_t free_pages = 0;       ///< now: held by nobody
    std::size_t cached_pages = 0;     ///< now: in the tree = pinned_pages + evictable_pages
    std::size_t pinned_pages = 0;     ///< now: in the tree and read by a lease
    std::size_t evictable_pages = 0;  ///< now: in the tree and read by nobody
    std::size_t leases = 0;           ///< now
    std::size_t namespaces = 0;       ///< now: beside the default one
    std::size_t nodes = 0;            ///< now: of the tree
    /// now: tree, bookkeeping, policy; not what the leases, the pages and their source take
    std::size_t index_bytes = 0;
};

/// No copy hook: partial pages are not matched.
struct NoCopy {};

/// What copies the first rows of a page group, see Lease.
template <class Copy>
concept copy_hook = std::same_as<std::remove_cvref_t<Copy>, NoCopy> ||
                    std::invocable<Copy&, PageId, PageId, std::size_t>;

/// Keeps page groups that requests have computed, so that later requests with the same beginning
/// adopt them instead of computing them again. Many leases share one copy of a prefix.
///
/// Choose it when the engine's attention reads KV through a block table. Choose PrefixCache when an
/// engine has one contiguous KV per sequence. RadixCache never touches KV: it deals in page ids.
///
/// The states of a page group, with the owners that are counted (G1). "Readers" are the leases that
/// adopted it or published it; a fork of the lease that published a page may hold it beside them,
/// and then eviction takes it out of the tree without making it free:
///
/// | state                  | tree | readers | becomes                                            |
/// | ---------------------- | ---- | ------- | -------------------------------------------------- |
/// | free                   | 0    | 0       | private by `acquire`, `acquire_sliding`,           |
/// |                        |      |         | `grow_to`, `anchor`, `cut_back`, `fork`            |
/// | private to leases      | 0    | –       | pinned by `publish`; free as its last lease ends   |
/// | in the tree, pinned    | 1    | ≥ 1     | evictable as its last reader lets go; private by   |
/// |                        |      |         | `clear` or `drop`                                  |
/// | in the tree, evictable | 1    | 0       | pinned by `acquire`; out of the tree by `evict`,   |
/// |                        |      |         | `drop`, `clear`; private when evicted for a lease  |
///
/// A pin is on nodes, not on pages: a node counts the leases that end with it and its pinned
/// children, so pinning a path touches each of its nodes once and none of its pages.
///
/// Template parameters: `Pages` where pages come from (page_source; PagePool or the engine's own
/// allocator, held by value: give it a small handle if the engine keeps the allocator). `Policy`
/// the order of eviction. `T` the token type.
///
/// Complexity: with n tokens compared and d nodes passed, `peek` and `acquire` are O(n + d) plus
/// the block table; `publish` O(tokens since the last one + nodes they fall into); releasing a
/// lease O(own pages + d); evicting a page O(1) amortised under LRU, whatever the number of leaves.
/// A node is added by each publication and each place where requests parted or stopped, and stays
/// as long as its pages: who publishes a long answer page by page gets a node a page.
/// Invalidation: leases that outlive the cache become empty.
/// Exceptions: std::bad_alloc and what a copy hook or the page source throws pass through; then
/// nothing has changed, except that pages may have been evicted to make room for what a copy hook
/// or the page source then failed to fill, and the match refreshed. InvalidArgument as stated at
/// each call. Releasing, evicting, dropping never throw.
/// Threads: none of its calls, nor those of its leases, may run beside a modifying one. For a form
/// that may be shared see shared_radix_cache.hpp.
///
///     kvstem::RadixCache<> cache({.page_tokens = 16}, kvstem::PagePool(4096));
///     auto [admission, lease] = cache.acquire(prompt);
///     if (admission != kvstem::Admission::granted) return later(prompt);
///     engine.prefill(prompt, lease.adopted(), lease.block_table()); // computes rows adopted() …
///     lease.wrote(prompt.subspan(lease.adopted()));
///     lease.publish();                                              // and dies: all is given back
template <page_source Pages = PagePool, eviction_policy Policy = LeastRecentlyUsed,
          token_type T = Token>
class RadixCache {
  public:
    using Lease = kvstem::Lease<RadixCache, T>;
    using Tokens = std::span<const T>;
    using TokenType = T;
    using RequestData = request_data<Policy>;

    /// Throws InvalidArgument for a page size of 0.
    explicit RadixCache(RadixCacheOptions options, Pages pages, Policy policy = {});
    RadixCache(const RadixCache&) = delete;
    RadixCache& operator=(const RadixCache&) = delete;
    ~RadixCache();

    [[nodiscard]] std::size_t page_tokens() const noexcept { return tree_.page_tokens(); }
    [[nodiscard]] const Pages& pages() const noexcept { return pages_; }
    [[nodiscard]] const Policy& policy() const noexcept { return policy_; }

    /// How much of a prompt is cached, without any effect (M2).
    [[nodiscard]] RadixMatch peek(Tokens prompt, const Namespace& name = {}) const noexcept;

    /// Starts a request: adopts the longest cached prefix in whole pages, but always leaves at
    /// least one token to run (M4), pins it, and takes pages for the rest of the prompt, evicting
    /// if it must. A refusal has evicted and changed nothing (E5), and counts as no query.
    ///
    /// With a copy hook (M8; see Lease for its form) the first rows of the next page are adopted
    /// too, where they agree with a cached page: they are copied into the lease's own page. The
    /// hints are the policy's to read.
    [[nodiscard]] Acquired<Lease> acquire(Tokens prompt, const Namespace& name = {},
                                          const RequestHints& hints = {}) {
        return acquire(prompt, name, NoCopy{}, hints);
    }
    template <copy_hook Copy>
    [[nodiscard]] Acquired<Lease> acquire(Tokens prompt, const Namespace& name, Copy&& copy,
                                          const RequestHints& hints = {});

    /// The same for a request whose layers all slide by one window: beside the pages of the prompt
    /// it takes `window.bound_pages(page_tokens())` more, and holds no more than that however long
    /// its answer (W1). See Lease::slide. Throws InvalidArgument for a window, interval or step of
    /// 0.
    [[nodiscard]] Acquired<Lease> acquire_sliding(Tokens prompt, const SlidingWindow& window,
                                                  const Namespace& name = {},
                                                  const RequestHints& hints = {}) {
        return acquire_sliding(prompt, window, name, NoCopy{}, hints);
    }
    template <copy_hook Copy>
    [[nodiscard]] Acquired<Lease> acquire_sliding(Tokens prompt, const SlidingWindow& window,
                                                  const Namespace& name, Copy&& copy,
                                                  const RequestHints& hints = {});

    /// Evicts up to `pages` pages, in the policy's order, leaves first and from the tail of a leaf.
    /// Returns how many left the tree; fewer only when everything else is pinned.
    std::size_t evict(std::size_t pages) noexcept;

    /// Empties the tree, in every namespace. Pages that leases read stay theirs until they are
    /// released; what these leases publish later goes nowhere (L5). The counters stay.
    void clear() noexcept;

    /// The same for one namespace. Returns how many pages left the tree.
    std::size_t drop(const Namespace& name) noexcept;

    /// The number of owners of a page: the tree, and every lease whose block table names it.
    /// O(pages of the trees and of all leases): for tests and debugging. Throws InvalidArgument for
    /// an id that the page source does not have.
    [[nodiscard]] std::uint32_t refs(PageId page) const;

    [[nodiscard]] std::size_t free_pages() const noexcept { return pages_.free_pages(); }
    [[nodiscard]] std::size_t cached_pages() const noexcept {
        return static_cast<std::size_t>(tree_.page_count()) - detached_pages_;
    }
    [[nodiscard]] std::size_t pinned_pages() const noexcept { return pinned_pages_; }
    [[nodiscard]] std::size_t evictable_pages() const noexcept {
        return cached_pages() - pinned_pages_;
    }
    [[nodiscard]] RadixCacheStats stats() const noexcept;

    /// Checks every invariant from raw state. O(everything).
    [[nodiscard]] AuditReport audit() const;

    /// Calls `visit(namespace, tree, root)` for every tree that `peek` can reach, the default
    /// namespace's first. For pictures and exports; the tree is read-only.
    template <class Visit>
    void visit_trees(Visit&& visit) const;
    /// Whether a lease reads a node of one of these trees.
    [[nodiscard]] bool is_pinned(NodeId node) const noexcept {
        return !tree_.is_root(node) && tree_.data(node).pins != 0;
    }

  private:
    friend Lease;
    static constexpr std::size_t most_spare_states = 64;
    static constexpr std::size_t nodes_ahead = 8;  // how far a walk along a known path asks ahead
    using State = detail::LeaseState<RadixCache, T>;

    struct NodeData {
        std::uint32_t pins = 0;  // leases that end here + pinned children; for a root, its record
        [[no_unique_address]] typename Policy::NodeData order{};
    };
    using Tree = RadixTree<T, PageId, NodeData>;

    /// The tree as a policy sees it.
    struct Nodes {
        Tree& tree;
        [[nodiscard]] auto& order(NodeId node) noexcept { return tree.data(node).order; }
        [[nodiscard]] bool is_leaf(NodeId node) const noexcept {
            return tree.child_count(node) == 0;
        }
        [[nodiscard]] bool is_pinned(NodeId node) const noexcept {
            return !tree.is_root(node) && tree.data(node).pins != 0;
        }
        [[nodiscard]] bool is_root(NodeId node) const noexcept { return tree.is_root(node); }
        [[nodiscard]] NodeId parent(NodeId node) const noexcept { return tree.parent(node); }
        [[nodiscard]] std::uint32_t pages(NodeId node) const noexcept { return tree.pages(node); }
        [[nodiscard]] std::span<const PageId> page_ids(NodeId node) const noexcept {
            return tree.values(node);
        }
        [[nodiscard]] Tokens tokens(NodeId node) const noexcept { return tree.tokens(node); }
    };

    /// The record of a tree: one for each namespace, and one for each cleared tree that leases
    /// still read from.
    struct Root {
        NodeId node = no_node;    // no_node: the record is free
        std::uint32_t entry = 0;  // number in the namespace table; 0 for the default namespace
        std::uint32_t leases = 0;
        bool detached = false;  // cleared: not found by anyone, and gone with its last lease
    };

    /// What an acquire will do, worked out before anything is changed.
    struct Plan {
        std::uint32_t root = detail::no_root;
        TreeMatch match;
        std::size_t table_pages = 0;
        std::size_t fresh_pages = 0;  // of them, those to take from the page source
    };

    // Trees of namespaces.
    [[nodiscard]] std::uint32_t root_of(const Namespace& name) const noexcept;
    [[nodiscard]] std::uint32_t root_for(const Namespace& name);
    void drop_root_if_unused(std::uint32_t root) noexcept;
    std::size_t detach(std::uint32_t root) noexcept;
    std::size_t remove_unpinned_below(NodeId root) noexcept;
    void detach_pinned_below(NodeId root) noexcept;

    // Nodes.
    NodeId cut(NodeId node, std::uint32_t keep);
    void uncut(NodeId upper, NodeId lower) noexcept;
    void pin(NodeId node) noexcept;
    void unpin(NodeId node, bool detached, std::span<const NodeId> path) noexcept;
    void remove_node(NodeId node) noexcept;
    std::size_t evict_into(std::span<PageId> out) noexcept;
    std::size_t evict_from(NodeId leaf, std::size_t most) noexcept;
    void tell_request(State& state, NodeId node, std::size_t matched, Tokens prompt,
                      const Namespace& name, const RequestHints& hints);
    bool pin_node(Nodes& nodes, NodeId node) noexcept;
    void pin_and_copy(std::span<const NodeId> path, std::span<PageId> out) noexcept;
    void look_ahead(Nodes& nodes) const noexcept;

    // Pages.
    static constexpr bool pins_in_turn = [] {
        if constexpr (requires { typename Policy::PinsInTurn; }) {
            return std::is_same_v<typename Policy::PinsInTurn, Policy>;
        }
        return false;
    }();
    static constexpr bool trusts_pages = std::is_same_v<Pages, PagePool>;
    void enter_tree(std::span<const PageId> pages, bool may_be_shared) noexcept;
    void leave_tree(std::span<const PageId> pages) noexcept;
    void release_private(std::span<const PageId> pages, bool may_be_shared) noexcept;
    struct Evictable {
        std::size_t pages = 0;
        std::size_t freeable = 0;  // of them, those that nobody but the tree holds
    };
    [[nodiscard]] bool can_free(std::size_t wanted, Evictable kept) const noexcept;
    [[nodiscard]] std::size_t freeable_pages() const noexcept;
    [[nodiscard]] std::size_t freeable_among(std::span<const PageId> pages) const noexcept;
    [[nodiscard]] Admission take_pages(std::span<PageId> out);
    void check_pages(std::span<const PageId> pages) const;
    void make_room(std::size_t wanted) noexcept;
    [[nodiscard]] std::size_t pages_for(std::size_t positions) const noexcept {
        return positions / page_tokens() + (positions % page_tokens() != 0 ? 1 : 0);
    }
    Admission refuse(Admission reason) noexcept;

    // Leases.
    [[nodiscard]] Plan plan(Tokens prompt, const Namespace& name, std::size_t more_pages);
    void note_path_to(NodeId node);
    template <class Copy>
    [[nodiscard]] Acquired<Lease> admit(Tokens prompt, const Namespace& name,
                                        const SlidingWindow& window, Copy&& copy,
                                        const RequestHints& hints);
    [[nodiscard]] Evictable evictable_on_path(const TreeMatch& match) const noexcept;
    [[nodiscard]] State& take_state();
    void give_state(State& state) noexcept;
    template <class Copy>
    void adopt_partial_page(State& state, Tokens prompt, Copy&& copy);
    void check_room(const State& state, std::size_t tokens) const;
    void wrote(State& state, Tokens tokens);
    [[nodiscard]] Admission grow_to(State& state, std::size_t positions);
    std::size_t publish(State& state);
    std::size_t publish(State& state, Tokens tokens);
    std::size_t publish_whole(State& state, Tokens tokens);
    [[nodiscard]] bool can_publish(const State& state) const noexcept;
    [[nodiscard]] std::size_t publishable(const State& state, std::size_t tokens) const noexcept;
    std::size_t switch_to_tree(State& state) noexcept;
    template <class Copy>
    [[nodiscard]] Acquired<Lease> fork(State& state, Copy&& copy);
    template <class Copy>
    [[nodiscard]] Admission cut_back(State& state, std::size_t position, Copy&& copy);
    std::size_t slide(State& state);
    [[nodiscard]] Admission anchor(State& state, std::size_t position);
    void cut_back_sliding(State& state, std::size_t position);
    struct CutPoint {
        NodeId inside;
        std::size_t begin;
    };
    [[nodiscard]] CutPoint cut_point(const State& state, std::size_t page) const noexcept;
    void share_less(State& state, std::size_t pages, NodeId end) noexcept;
    void note_duplicates(State& state, NodeId end, std::size_t known) noexcept;
    [[nodiscard]] bool needs_copy(const State& state, std::size_t page) const noexcept;
    void give_up_pages(State& state, std::size_t keep) noexcept;
    void release(State& state) noexcept;

    // Auditing.
    void audit_pins(AuditReport& report) const;
    void audit_pages(AuditReport& report) const;
    void audit_leases(AuditReport& report) const;

    Pages pages_;
    Policy policy_;
    Tree tree_;
    detail::NamespaceTable namespaces_;
    std::vector<Root> roots_;
    std::vector<std::uint32_t> free_roots_;  // records that are free; room for all of them
    std::uint32_t default_root_ = detail::no_root;
    // Pages that a lookup can find, as far as anyone has to ask: those published by a lease that
    // had been forked, because the fork may hold them, too; and with a page source of the engine's
    // all, to see that it hands out none of them again.
    detail::PageBits in_tree_;
    std::span<PageId> waiting_;  // places for the pages evicted next; else they go to the source
    std::vector<NodeId> path_;   // of the request at hand, from the top down; kept for its memory
    std::vector<State*> leases_;
    std::vector<State*> spare_states_;  // states of dead leases, whose small buffers are used again
    std::size_t pinned_pages_ = 0;      // in the tree, on pinned nodes
    std::size_t detached_pages_ = 0;    // on nodes of detached trees
    // Pages in the tree that some lease also holds privately (a fork of the one that published
    // them): evicting such a page does not free it.
    std::size_t overlapping_pages_ = 0;
    RadixCacheStats counters_;  // its gauges are filled in by `stats`
};

}  // namespace kvstem

#include "detail/radix_cache_leases.hpp"
#include "detail/radix_cache_tree.hpp"
#include "detail/radix_cache_windows.hpp"
