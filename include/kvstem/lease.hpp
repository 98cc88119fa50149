// SPDX-License-Identifier: MIT
// Lease: one running request's hold on its pages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "config.hpp"
#include "detail/page_table.hpp"
#include "errors.hpp"
#include "radix_tree.hpp"
#include "token.hpp"

namespace kvstem::inline KVSTEM_ABI {

/// Whether a request for pages was granted, and if not, whether waiting can help.
enum class Admission {
    granted,
    exhausted,  ///< not now: too many pages are held by running requests
    never_fits  ///< never: more pages than the whole pool has
};

namespace detail {

inline constexpr std::uint32_t no_root = 0xFFFF'FFFFu;

/// What a cache keeps for a lease. It does not move while the lease lives, so that the handle can be
/// moved freely and its getters need nothing but this.
template <class Cache, class T>
struct LeaseState {
    Cache* cache = nullptr;
    void* owner = nullptr;         // the Lease, so that a cache that dies first can empty it
    std::uint32_t place = 0;       // in the cache's list of leases
    std::uint32_t root = no_root;  // the cache's record of the namespace's tree
    NodeId node = no_node;         // the deepest node whose pages the lease shares; pinned by it
    std::size_t adopted = 0;       // positions taken over when the lease was acquired
    std::size_t shared_pages = 0;  // leading pages that stand in the tree, on the path to `node`
    std::size_t written = 0;       // positions with a KV row
    PageTable table;
    // Page indices below shared_pages where the table still names the lease's own copy, not the tree's.
    std::vector<std::uint32_t> duplicates;
    std::vector<T> tail;        // the tokens of positions [shared_pages × P, written)
    bool shares_pages = false;  // some private page may be held by a fork as well

    /// Whether the page at index i of the table is the lease's own hold, not the tree's.
    [[nodiscard]] bool holds_privately(std::size_t i) const noexcept {
        return i >= shared_pages ||
               std::find(duplicates.begin(), duplicates.end(), i) != duplicates.end();
    }
    /// As new, but for the memory of its buffers.
    void reset() noexcept {
        owner = nullptr;
        root = no_root;
        node = no_node;
        adopted = shared_pages = written = 0;
        table.resize(0);
        duplicates.clear();
        tail.clear();
        shares_pages = false;
    }
};

}  // namespace detail

/// One running request's pages, adopted and own, named by a block table. Move-only; when it dies, on
/// whatever path, everything it holds is given back (L1). A cache hands it out, already pinned.
///
///     positions   0 ········ adopted ········ written ········ capacity
///                 │ others   │ computed       │ room for      │
///                 │ computed │ by this one    │ the next rows │
///     block table [ p0 | p1  |  p2  |  p3 ··· |  p4 ]
///                 └─ in the tree ─┘└─ this lease's own ─┘
///
/// The order of a request's life: `acquire` → compute rows from `adopted()` on → `wrote` their tokens →
/// (`grow_to`, compute, `wrote`) … → `publish` → drop. Rows may only be written at positions from
/// `written()` on: everything before may be shared with other requests.
///
/// Invalidation: the block table's content changes with `grow_to`, `cut_back` and `switch_to_tree`
/// only, and its address with the first two. Exceptions: StaleHandle for any use (but `empty`, moving
/// and destruction) of a lease that was released or moved from, or whose cache is gone; std::bad_alloc
/// and what a copy hook throws pass through with nothing changed. Threads: as the cache's.
///
/// A copy hook is any callable `copy(PageId from, PageId to, std::size_t rows)` that copies the first
/// `rows` rows of a page group, in every layer.
template <class Cache, class T>
class Lease {
  public:
    Lease() = default;
    Lease(Lease&& other) noexcept : state_(std::exchange(other.state_, nullptr)) { own(); }
    Lease& operator=(Lease&& other) noexcept {
        if (this != &other) {
            release();
            state_ = std::exchange(other.state_, nullptr);
            own();
        }
        return *this;
    }
    ~Lease() { release(); }

    /// Whether it holds nothing: default-constructed, moved from, released, or its cache is gone.
    [[nodiscard]] bool empty() const noexcept { return state_ == nullptr; }

    /// Positions whose KV was there already when the lease was acquired: where prefill starts.
    [[nodiscard]] std::size_t adopted() const { return state().adopted; }
    /// Positions that have a KV row now: where the next row goes.
    [[nodiscard]] std::size_t written() const { return state().written; }
    /// Positions that stand in the tree, for others to adopt.
    [[nodiscard]] std::size_t published() const {
        return state().shared_pages * state().cache->page_tokens();
    }
    /// Positions the block table has room for.
    [[nodiscard]] std::size_t capacity() const {
        return state().table.size() * state().cache->page_tokens();
    }
    /// The page group of positions [i × P, (i + 1) × P) at index i.
    [[nodiscard]] std::span<const PageId> block_table() const { return state().table.view(); }

    /// Declares that the rows of these tokens have been computed, at the positions from `written()` on.
    /// Throws InvalidArgument if they go beyond `capacity()`.
    void wrote(std::span<const T> tokens) { state().cache->wrote(state(), tokens); }

    /// Makes room for `positions` positions in all, with the same refusals as `acquire` (L4). A refusal
    /// changes nothing; room for fewer positions than there is is granted and changes nothing.
    [[nodiscard]] Admission grow_to(std::size_t positions) {
        return state().cache->grow_to(state(), positions);
    }

    /// Offers the whole pages written so far to later requests (P1, P5), and returns how many pages are
    /// new in the tree. The lease's pin covers them from now on. Where the tree has the same prefix on
    /// other pages it keeps its own (P2); the block table goes on naming the lease's, so that work in
    /// flight may finish, until `switch_to_tree` or the end of the lease. After `clear` or a drop of the
    /// namespace there is nothing to publish to: 0.
    std::size_t publish() { return state().cache->publish(state()); }

    /// Names the tree's pages in the block table instead of the lease's duplicates, frees those, and
    /// returns how many. Requires: no work in flight reads the old block table.
    std::size_t switch_to_tree() { return state().cache->switch_to_tree(state()); }

    /// A second lease at the same position (n > 1, beams): whole pages are shared, the partial page is
    /// copied into a fresh one by the hook (L2). The result is empty, with the reason in `refusal`, when
    /// there is no page for it.
    template <class Copy>
    [[nodiscard]] auto fork(Copy&& copy) {
        return state().cache->fork(state(), static_cast<Copy&&>(copy));
    }

    /// Goes back to `position` ≤ `written()`: what follows was not accepted (L3). Whole pages past it
    /// are freed. If the page that is cut inside is shared, a private copy of its first rows takes its
    /// place, by the hook; that needs a free page, and without one nothing changes.
    template <class Copy>
    [[nodiscard]] Admission cut_back(std::size_t position, Copy&& copy) {
        return state().cache->cut_back(state(), position, static_cast<Copy&&>(copy));
    }

    /// Gives everything back now instead of at the end of scope. A second call does nothing.
    void release() noexcept {
        if (state_ != nullptr) state_->cache->release(*std::exchange(state_, nullptr));
    }

  private:
    friend Cache;
    using State = detail::LeaseState<Cache, T>;

    explicit Lease(State& state) noexcept : state_(&state) { own(); }
    void own() noexcept {
        if (state_ != nullptr) state_->owner = this;
    }
    [[nodiscard]] State& state() const {
        if (state_ == nullptr) {
            detail::fail<StaleHandle>(
                "the lease is empty: released, moved from, or without its cache");
        }
        return *state_;
    }

    State* state_ = nullptr;
};

}  // namespace kvstem
