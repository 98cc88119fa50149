// SPDX-License-Identifier: MIT
// PrefixCache: snapshots of whole sequences, found by their longest common prefix.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "audit.hpp"
#include "config.hpp"
#include "detail/namespace_table.hpp"
#include "detail/on_failure.hpp"
#include "errors.hpp"
#include "kv_traits.hpp"
#include "namespace.hpp"
#include "radix_tree.hpp"
#include "token.hpp"

namespace kvstem::inline KVSTEM_ABI {

/// For a limit that is not wanted.
inline constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

/// How much a PrefixCache may hold. 0 in either stores nothing.
struct SnapshotCapacity {
    std::size_t max_entries = 64;
    std::size_t max_bytes = unlimited;  ///< over KV, logits and tokens of all entries
};

/// What `peek` says: how long a match would be, and whether logits would come with it.
struct SnapshotMatch {
    std::size_t tokens = 0;
    bool has_logits = false;
};

/// A match that was handed out. The KV covers exactly `tokens` positions.
template <class KvCache, class Logits>
struct SnapshotHit {
    KvCache kv;
    std::size_t tokens = 0;
    /// The pending logits: they predict the token at position `tokens`. Absent when the match ends
    /// inside the stored sequence, or when it was stored without.
    std::optional<Logits> logits;
    /// True when the snapshot itself was moved out (`take`), so that the cache no longer holds it.
    bool moved = false;
};

/// What `store` did. All of these are normal; none of them throws.
enum class StoreOutcome {
    stored,    ///< a new entry
    replaced,  ///< the tokens were there already: their entry has the new KV and logits
    empty,     ///< no tokens: nothing to store
    too_large  ///< more than the whole capacity: refused, and nothing was evicted for it
};

/// Plain counters and gauges. Counters only grow, also across `clear`.
struct PrefixCacheStats {
    std::uint64_t hits = 0;            ///< `acquire` or `take` returned something
    std::uint64_t misses = 0;          ///< … returned nothing
    std::uint64_t queried_tokens = 0;  ///< lengths of all prompts = hit_tokens + missed_tokens
    std::uint64_t hit_tokens = 0;      ///< positions reused
    std::uint64_t missed_tokens = 0;
    std::uint64_t taken = 0;     ///< of the hits, how many moved the snapshot out
    std::uint64_t stored = 0;    ///< calls of `store` that stored or replaced
    std::uint64_t replaced = 0;  ///< … of them, how many replaced
    std::uint64_t refused = 0;   ///< … that were too large
    std::uint64_t evictions = 0;
    std::size_t entries = 0;      ///< now
    std::size_t bytes = 0;        ///< now: KV, logits and tokens, what max_bytes limits
    std::size_t index_bytes = 0;  ///< now: the radix tree that finds them, not limited
    std::size_t namespaces = 0;   ///< now: beside the default one
};

/// Keeps the KV of whole sequences and hands out copies, cut to the part a new prompt shares.
///
/// Choose it when an engine has one contiguous KV per sequence, or a state that cannot be cut at
/// all. Choose RadixCache when the engine's attention reads pages through a block table: there many
/// requests share one copy of a prefix, here each holds its own.
///
/// What a lookup returns, with query q, stored sequence s, and c = their common prefix:
///
/// | case                            | positions      | logits                             |
/// | ------------------------------- | -------------- | ---------------------------------- |
/// | s = q                           | all of q       | those of s                         |
/// | q goes on after s               | all of s       | those of s                         |
/// | q ends inside s, or they part   | c, s is cut    | none: they belong to the end of s  |
/// | they part, and s cannot be cut  | longest cut ≤ c, or no match by s | none            |
/// | nothing in common               | no match       | –                                  |
///
/// Of several stored sequences the one with the longest match serves; at equal length one that ends
/// exactly there (its logits are valid), then the one used most recently. Hits and stores are uses;
/// the entry whose last use is the oldest is evicted first.
///
/// Complexity: with n tokens compared and d nodes passed, a lookup is O(n + d) plus the copy of the
/// KV, whatever the number of entries; `store` O(tokens + d); an eviction O(d). Nodes are the
/// places where stored sequences end or part, and where one that went on was stored before. Where
/// `take` leaves a branch without its newest entry it also passes the branches beside it that were
/// used since. For a type whose `longest_cut` refuses a cut, a lookup also looks at the entries
/// below the branching, once each.
/// Invalidation: hits are values of the caller's; nothing the cache does later touches them.
/// Exceptions: what the KV type, the logits and the allocator throw passes through, and then
/// nothing has changed. InvalidArgument for a snapshot whose length is not that of its tokens.
/// Threads: none of its calls may run beside a modifying one; const calls may run side by side.
///
///     kvstem::PrefixCache<MyKv> cache({.max_entries = 100});
///     if (auto hit = cache.acquire(prompt)) engine.resume(std::move(hit->kv), hit->tokens);
///     …
///     cache.store(all_tokens, engine.kv(), engine.logits());
template <kv_snapshot KvCache, token_type T = Token, class Logits = std::vector<float>>
class PrefixCache {
    static_assert(std::is_nothrow_move_constructible_v<Logits> &&
                      std::is_nothrow_move_assignable_v<Logits>,
                  "Logits must move without throwing, so that a failed call can change nothing");

  public:
    using Hit = SnapshotHit<KvCache, Logits>;
    using Tokens = std::span<const T>;

    explicit PrefixCache(SnapshotCapacity capacity = {}) : capacity_(capacity), tree_(1) {
        default_root_ = tree_.add_root();
    }
    PrefixCache(const PrefixCache&) = delete;
    PrefixCache& operator=(const PrefixCache&) = delete;

    /// How long the match of a prompt would be, without any effect: no use, no count, no copy.
    [[nodiscard]] SnapshotMatch peek(Tokens prompt, const Namespace& name = {}) const noexcept {
        const Found found = locate(prompt, name);
        if (found.slot == none) return {};
        const Slot& slot = slots_[found.slot];
        return {found.tokens, found.tokens == slot.tokens && slot.logits.has_value()};
    }

    /// Copies the best match out; nothing on a miss. Counts one query and, on a hit, one use.
    [[nodiscard]] std::optional<Hit> acquire(Tokens prompt, const Namespace& name = {})
        requires copyable_kv_snapshot<KvCache>;

    /// Like `acquire`, but when the match covers a whole stored sequence, that snapshot is moved
    /// out instead of copied and is no longer in the cache: the next turn of a conversation copies
    /// nothing. A match that ends inside a stored sequence is copied as by `acquire`, because the
    /// longer sequence stays useful; a KV type that cannot be copied is then not matched.
    [[nodiscard]] std::optional<Hit> take(Tokens prompt, const Namespace& name = {});

    /// Stores a snapshot: the KV of exactly these tokens and, if given, the logits that follow the
    /// last of them. An entry of the same tokens is replaced. Whether it can fit is decided before
    /// anything is copied; then the least recently used entries make room.
    ///
    /// Throws InvalidArgument if the KV's length is not the number of tokens.
    StoreOutcome store(Tokens tokens, const KvCache& kv, const std::optional<Logits>& logits = {},
                       const Namespace& name = {})
        requires std::copy_constructible<KvCache>
    {
        return store_from(tokens, kv, logits, name);
    }
    /// The same, moving the KV and the logits in. They are moved from only if the outcome is
    /// `stored` or `replaced`; after an exception they are untouched.
    StoreOutcome store(Tokens tokens, KvCache&& kv, std::optional<Logits>&& logits = {},
                       const Namespace& name = {}) {
        return store_from(tokens, std::move(kv), std::move(logits), name);
    }
    /// The same, moving the KV in and copying the logits.
    StoreOutcome store(Tokens tokens, KvCache&& kv, const std::optional<Logits>& logits,
                       const Namespace& name = {}) {
        return store_from(tokens, std::move(kv), logits, name);
    }

    /// Evicts the entry whose last use is the oldest. False if there is none.
    bool evict() noexcept;

    /// Drops every entry, in every namespace; the counters stay. Drops are not evictions.
    void clear() noexcept;

    /// Drops every entry of one namespace and returns how many there were. O(entries dropped).
    std::size_t drop(const Namespace& name) noexcept;

    [[nodiscard]] std::size_t size() const noexcept { return entries_; }
    [[nodiscard]] SnapshotCapacity capacity() const noexcept { return capacity_; }
    [[nodiscard]] PrefixCacheStats stats() const noexcept;

    /// Checks every invariant from raw state. O(everything).
    [[nodiscard]] AuditReport audit() const;

  private:
    using Traits = kv_traits<KvCache>;
    static constexpr std::uint32_t none = 0xFFFF'FFFFu;

    /// What a tree node carries. For the root of a namespace, `entry` is that namespace's number.
    struct NodeData {
        std::uint32_t entry = none;   // the slot of the snapshot that ends with this node
        std::uint32_t newest = none;  // the slot used last of all that end in this subtree
    };
    using Tree = RadixTree<T, NoValue, NodeData>;

    struct Slot {
        std::optional<KvCache> kv;  // empty: the slot is free
        std::optional<Logits> logits;
        std::size_t tokens = 0;
        std::size_t bytes = 0;
        Stamp stamp{};
        NodeId node = no_node;
        // Neighbours in the order of use; `newer` links the free slots.
        std::uint32_t newer = none;
        std::uint32_t older = none;
    };

    struct Found {
        std::uint32_t slot = none;
        std::size_t tokens = 0;
    };

    [[nodiscard]] NodeId root_of(const Namespace& name) const noexcept {
        return name.is_default() ? default_root_ : NodeId{namespaces_.find(name)};
    }

    [[nodiscard]] Found locate(Tokens prompt, const Namespace& name) const noexcept;
    void consider_below(NodeId top, NodeId except, std::size_t tokens, Found& best) const noexcept;
    [[nodiscard]] std::size_t cut_of(std::uint32_t slot, std::size_t tokens) const noexcept;
    [[nodiscard]] bool used_later(std::uint32_t a, std::uint32_t b) const noexcept {
        return a != none && (b == none || slots_[a].stamp > slots_[b].stamp);
    }

    [[nodiscard]] Hit copy_out(const Found& found) const;
    void count(std::size_t queried_tokens, std::size_t hit_tokens) noexcept;

    template <class Kv, class OptionalLogits>
    StoreOutcome store_from(Tokens tokens, Kv&& kv, OptionalLogits&& logits, const Namespace& name);
    [[nodiscard]] static std::size_t bytes_of(Tokens tokens, const KvCache& kv,
                                              const std::optional<Logits>& logits) noexcept;
    [[nodiscard]] NodeId node_for(Tokens tokens, const Namespace& name);
    [[nodiscard]] NodeId root_for(const Namespace& name);
    void drop_empty_root(NodeId root) noexcept;
    void make_room(std::size_t bytes, std::size_t entries) noexcept;

    void reserve_slot();
    [[nodiscard]] std::uint32_t take_slot(NodeId node) noexcept;
    void give_slot(std::uint32_t slot) noexcept;
    void use(std::uint32_t slot) noexcept;
    void link_as_newest(std::uint32_t slot) noexcept;
    void unlink(std::uint32_t slot) noexcept;
    void remove(std::uint32_t slot) noexcept;
    void forget_newest(NodeId node, std::uint32_t slot) noexcept;
    void settle(NodeId node) noexcept;
    std::size_t drop_below(NodeId root) noexcept;

    void audit_order(AuditReport& report) const;
    void audit_subtree(AuditReport& report, NodeId root) const;

    SnapshotCapacity capacity_;
    Tree tree_;
    NodeId default_root_;
    detail::NamespaceTable namespaces_;
    std::vector<Slot> slots_;
    std::uint32_t free_slot_ = none;
    std::uint32_t newest_ = none;
    std::uint32_t oldest_ = none;
    std::uint64_t clock_ = 0;
    std::size_t entries_ = 0;
    std::size_t bytes_ = 0;
    PrefixCacheStats counters_;  // its gauges are filled in by `stats`
};

}  // namespace kvstem

#include "detail/prefix_cache_bodies.hpp"
