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
#include "sliding_window.hpp"
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
inline constexpr std::size_t no_anchor = ~std::size_t{0};

/// What a cache keeps for a lease. It does not move while the lease lives, so that the handle can
/// be moved freely and its getters need nothing but this.
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
    // The way its pin has gone, from the top down, for the way back: every node is on the path to
    // `node`, which may have got others in between since.
    std::vector<NodeId> path;
    // Page indices below shared_pages, ascending, where the table still names the lease's own copy,
    // not the tree's.
    std::vector<std::uint32_t> duplicates;
    std::vector<T> tail;        // the tokens of positions [shared_pages × P, written)
    bool shares_pages = false;  // some private page may be held by a fork as well
    [[no_unique_address]] typename Cache::RequestData policy_data{};  // the policy's own

    // Of a request whose window slides (window_tokens is 0 for all others):
    SlidingWindow window{};
    std::size_t prompt_pages =
        0;                       // whole pages of the prompt: what a request that slides publishes
    std::size_t kept_from = 0;   // rows of earlier positions may be gone
    std::size_t slid_pages = 0;  // own pages before this index have been given to later positions
    std::size_t anchor = no_anchor;
    std::size_t anchor_pages = 0;  // pages taken beyond those of the admission, for the anchor

    [[nodiscard]] bool slides() const noexcept { return window.window_tokens != 0; }
    /// Whether the page at index i of the table is the lease's own hold, not the tree's.
    [[nodiscard]] bool holds_privately(std::size_t i) const noexcept {
        if (i >= shared_pages) return table[i] != no_page;
        return std::binary_search(duplicates.begin(), duplicates.end(), i);
    }
    /// As new, but for the memory of its buffers.
    void reset() noexcept {
        owner = nullptr;
        root = no_root;
        node = no_node;
        adopted = shared_pages = written = 0;
        table.resize(0);
        path.clear();
        duplicates.clear();
        tail.clear();
        shares_pages = false;
        policy_data = {};
        window = {};
        // The next lease uses the buffers again, unless they are large: a few long requests should
        // not be paid for ever after.
        constexpr std::size_t most_kept = 1u << 16;
        if (table.capacity() > most_kept) table.clear();
        if (tail.capacity() > most_kept) std::vector<T>().swap(tail);
        if (duplicates.capacity() > most_kept) std::vector<std::uint32_t>().swap(duplicates);
        if (path.capacity() > most_kept) std::vector<NodeId>().swap(path);
        kept_from = slid_pages = anchor_pages = 0;
        anchor = no_anchor;
    }
};

}  // namespace detail

/// One running request's pages, adopted and own, named by a block table. Move-only; when it dies,
/// on whatever path, everything it holds is given back (L1). A cache hands it out, already pinned.
///
///     positions   0 ········ adopted ········ written ········ capacity
///                 │ others   │ computed       │ room for      │
///                 │ computed │ by this one    │ the next rows │
///     block table [ p0 | p1  |  p2  |  p3 ··· |  p4 ]
///                 └─ in the tree ─┘└─ this lease's own ─┘
///
/// The order of a request's life: `acquire` → compute rows from `adopted()` on → `wrote` their
/// tokens → (`grow_to`, compute, `wrote`) … → `publish` → drop. Rows may only be written at
/// positions from `written()` on: everything before may be shared with other requests.
///
/// A copy hook is any callable `copy(PageId from, PageId to, std::size_t rows)` that copies the
/// first `rows` rows of a page group, in every layer.
///
/// Invalidation: the block table's content changes with `grow_to`, `cut_back`, `switch_to_tree`,
/// `slide` and `anchor` only, and with `grow_to`, `slide` and `anchor` it may move.
/// Exceptions: StaleHandle for any use (but `empty`, moving and destruction) of a lease that was
/// released or moved from, or whose cache is gone; std::bad_alloc and what a copy hook throws pass
/// through with nothing changed.
/// Threads: as the cache's.
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

    /// Declares that the rows of these tokens have been computed, at the positions from `written()`
    /// on.
    /// Throws InvalidArgument if they go beyond `capacity()`.
    void wrote(std::span<const T> tokens) { state().cache->wrote(state(), tokens); }

    /// Makes room for `positions` positions in all, with the same refusals as `acquire` (L4). A
    /// refusal changes nothing; room for fewer positions than there is is granted and changes
    /// nothing.
    [[nodiscard]] Admission grow_to(std::size_t positions) {
        return state().cache->grow_to(state(), positions);
    }

    /// Offers the whole pages written so far to later requests (P1, P5), and returns how many pages
    /// are new in the tree. The lease's pin covers them from now on. Of a lease whose window slides
    /// only the pages of the prompt are published, for the others serve its later positions. Where
    /// the tree has the same prefix on other pages it keeps its own (P2); the block table goes on
    /// naming the lease's, so that work in flight may finish, until `switch_to_tree` or the end of
    /// the lease. After `clear` or a drop of the namespace there is nothing to publish to: 0.
    std::size_t publish() { return state().cache->publish(state()); }
    /// The same as `wrote(tokens)` and then `publish()`, but whole pages go into the tree without
    /// being copied into the lease first: for a prompt that was computed in one go.
    std::size_t publish(std::span<const T> tokens) {
        return state().cache->publish(state(), tokens);
    }

    /// Names the tree's pages in the block table instead of the lease's duplicates, frees those,
    /// and returns how many. Requires: no work in flight reads the old block table.
    std::size_t switch_to_tree() { return state().cache->switch_to_tree(state()); }

    /// A second lease at the same position (n > 1, beams): whole pages are shared, the partial page
    /// is copied into a fresh one by the hook (L2). Not for leases whose window slides
    /// (InvalidArgument): a page that two of them hold could serve neither's later positions. The
    /// result is empty, with the reason in `admission`, when there is no page for it.
    template <class Copy>
    [[nodiscard]] auto fork(Copy&& copy) {
        return state().cache->fork(state(), static_cast<Copy&&>(copy));
    }

    /// Goes back to `position` ≤ `written()`: what follows was not accepted (L3). Whole pages past
    /// it are freed. If the page that is cut inside is shared, a private copy of its first rows
    /// takes its place, by the hook; that needs a free page, and without one nothing changes. A
    /// lease whose window slides keeps its own pages for the positions to come, and cannot go back
    /// to where it would need rows before `kept_from()`, nor behind `published()`
    /// (InvalidArgument).
    template <class Copy>
    [[nodiscard]] Admission cut_back(std::size_t position, Copy&& copy) {
        return state().cache->cut_back(state(), position, static_cast<Copy&&>(copy));
    }

    /// For a lease from `acquire_sliding`: the first position whose row is certain to be held. The
    /// block table names no_page where it is not.
    [[nodiscard]] std::size_t kept_from() const { return state().kept_from; }

    /// Gives the own pages behind the window to later positions of this lease (W2): they leave the
    /// block table where they were and join it at its end, so `capacity()` grows by what was given
    /// up, and decoding never needs another page. Adopted and published pages stay (W3). Returns
    /// how many pages moved; 0 while less than the window's interval could be given up. Call it
    /// after every `wrote`, and after `publish` if the prompt is to be published: a lease that has
    /// slid no longer has its prefix, and publishes nothing (P4).
    /// Throws InvalidArgument for a lease that was acquired without a window; std::bad_alloc.
    std::size_t slide() { return state().cache->slide(state()); }

    /// Holds on to what a later request needs that rejoins at `position` (W4), such as the token
    /// that opens a tool call: until the cursor is a whole window past it, the slide stops short of
    /// it. One position at a time; a new one replaces the one before. Takes the pages it needs
    /// once, with the refusals of `grow_to`. Throws InvalidArgument for a position whose window is
    /// not held any more, or beyond `written()`.
    [[nodiscard]] Admission anchor(std::size_t position) {
        return state().cache->anchor(state(), position);
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
