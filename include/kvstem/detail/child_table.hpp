// SPDX-License-Identifier: MIT
// Which child of which node: one flat hash table for a whole tree, resized without a pause.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

#include "../config.hpp"
#include "fetch_ahead.hpp"

namespace kvstem::inline KVSTEM_ABI::detail {

/// A multimap from 32-bit fingerprints to node ids by open addressing with linear probing. It never
/// looks at a node itself: the caller says whether a candidate is the one, so a colliding
/// fingerprint costs a look and nothing else. Each entry carries a clue, a number of the caller's
/// that may be out of date: it lets a lookup ask for the candidate's tokens at the same time as for
/// the candidate.
///
/// Resizing is spread over the operations that cause it. The next array is zeroed a few slots at a
/// time while the current one still has room, then slots move over a few at a time; in between a
/// lookup probes both. One insertion therefore costs O(1) in the worst case, not only on average
/// (plus one allocation that touches no memory), and a shrinking tree gives its table back.
///
/// Load: grows from 70 % full by half, shrinks below 15 %. Exceptions: `reserve_one` throws what
/// operator new throws, with nothing changed; all else is noexcept.
class ChildTable {
  public:
    ChildTable() = default;
    ChildTable(const ChildTable&) = delete;
    ChildTable& operator=(const ChildTable&) = delete;
    ~ChildTable() {
        release(current_);
        release(next_);
    }

    /// Makes sure that the next `insert` has room and need not allocate.
    void reserve_one() {
        if (current_.slots == nullptr) {
            current_ = allocate(smallest_capacity);
            zero_all(current_);
        }
        if (next_.slots == nullptr &&
            std::uint64_t{size_ + 1} * 10 > std::uint64_t{current_.capacity} * 7) {
            start_resize(allocate(current_.capacity + current_.capacity / 2));
        }
    }

    /// Files `node` under `hash`, with a clue for `find` to pass on. Requires: `reserve_one` since
    /// the last insertion.
    void insert(std::uint32_t hash, std::uint32_t node, std::uint32_t clue = 0) noexcept {
        // While a resize is on its way the new entry goes where it will stay, once there is a
        // place.
        place(moving() ? next_ : current_, {hash, node, clue});
        ++size_;
        advance();
    }

    /// The first id filed under `hash` that `accept(id)` says yes to; 0 if there is none. Before a
    /// candidate is looked at, `foresee` gets the clue it was filed with.
    template <class Accept, class Foresee>
    [[nodiscard]] std::uint32_t find(std::uint32_t hash, Accept&& accept, Foresee&& foresee) const {
        if (current_.slots == nullptr) return 0;
        if (const Slot* slot = probe(current_, hash, accept, foresee)) return slot->node;
        if (moving()) {
            if (const Slot* slot = probe(next_, hash, accept, foresee)) return slot->node;
        }
        return 0;
    }
    template <class Accept>
    [[nodiscard]] std::uint32_t find(std::uint32_t hash, Accept&& accept) const {
        return find(hash, accept, [](std::uint32_t) noexcept {});
    }

    /// Puts `now` in the place of `old`, which is filed under `hash`.
    void replace(std::uint32_t hash, std::uint32_t old, std::uint32_t now) noexcept {
        locate(hash, old)->node = now;
    }

    /// Gives `node`, which is filed under `hash`, another clue.
    void set_clue(std::uint32_t hash, std::uint32_t node, std::uint32_t clue) noexcept {
        locate(hash, node)->clue = clue;
    }

    /// Removes `node`, which is filed under `hash`.
    void erase(std::uint32_t hash, std::uint32_t node) noexcept {
        Slot* slot = locate(hash, node);
        if (is_in(next_, slot)) {
            close_gap(next_, slot);
        } else if (moving()) {
            slot->node = moved;  // the array is on its way out: a mark costs less than closing up
        } else {
            close_gap(current_, slot);
        }
        --size_;
        if (next_.slots == nullptr && current_.capacity > smallest_capacity &&
            std::uint64_t{size_} * 100 < std::uint64_t{current_.capacity} * 15) {
            shrink();
        }
        advance();
    }

    /// Asks the processor for the slots at which a lookup of `hash` will begin.
    void prefetch(std::uint32_t hash) const noexcept {
        if (current_.slots != nullptr) fetch_ahead(current_.slots + home(current_, hash));
        if (moving()) fetch_ahead(next_.slots + home(next_, hash));
    }

    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] std::size_t bytes() const noexcept {
        return (current_.capacity + next_.capacity) * sizeof(Slot);
    }

  private:
    struct Slot {
        std::uint32_t hash;
        std::uint32_t node;  // 0: empty
        std::uint32_t clue;
    };
    struct Array {
        Slot* slots = nullptr;
        std::size_t capacity = 0;
    };

    static constexpr std::size_t smallest_capacity = 64;
    static constexpr std::uint32_t moved = 0xFFFF'FFFFu;  // no node id: pools hold fewer
    static constexpr std::size_t zeroed_per_step = 64;
    static constexpr std::size_t moved_per_step = 16;

    /// The home follows from the hash alone and is monotone in it, for any capacity, so that
    /// neither moving nor erasing needs the node.
    static std::size_t home(const Array& array, std::uint32_t hash) noexcept {
        return static_cast<std::size_t>(static_cast<std::uint64_t>(hash) * array.capacity >> 32);
    }
    static std::size_t after(const Array& array, std::size_t i) noexcept {
        return ++i == array.capacity ? 0 : i;
    }
    static bool is_in(const Array& array, const Slot* slot) noexcept {
        return array.slots != nullptr && slot >= array.slots && slot < array.slots + array.capacity;
    }

    template <class Accept, class Foresee>
    static const Slot* probe(const Array& array, std::uint32_t hash, Accept&& accept,
                             Foresee&& foresee) {
        for (std::size_t i = home(array, hash); array.slots[i].node != 0; i = after(array, i)) {
            const Slot& slot = array.slots[i];
            if (slot.hash != hash || slot.node == moved) continue;
            foresee(slot.clue);
            if (accept(slot.node)) return &slot;
        }
        return nullptr;
    }

    Slot* locate(std::uint32_t hash, std::uint32_t node) noexcept {
        const auto same = [node](std::uint32_t candidate) { return candidate == node; };
        const auto ignore = [](std::uint32_t) noexcept {};
        const Slot* slot = probe(current_, hash, same, ignore);
        if (slot == nullptr && moving()) slot = probe(next_, hash, same, ignore);
        KVSTEM_ASSERT(slot != nullptr);
        return const_cast<Slot*>(slot);
    }

    static void place(Array& array, const Slot& slot) noexcept {
        std::size_t i = home(array, slot.hash);
        while (array.slots[i].node != 0 && array.slots[i].node != moved) i = after(array, i);
        array.slots[i] = slot;
    }

    /// Empties a slot and moves later entries of its cluster back, so that probing never has to
    /// pass over graves.
    static void close_gap(Array& array, Slot* slot) noexcept {
        std::size_t gap = static_cast<std::size_t>(slot - array.slots);
        for (std::size_t i = after(array, gap); array.slots[i].node != 0; i = after(array, i)) {
            const std::size_t at_home = home(array, array.slots[i].hash);
            // May the entry at i move to the gap? Only if its home is not between gap and i.
            const bool home_in_between =
                gap <= i ? (gap < at_home && at_home <= i) : (gap < at_home || at_home <= i);
            if (home_in_between) continue;
            array.slots[gap] = array.slots[i];
            gap = i;
        }
        array.slots[gap].node = 0;
    }

    static Array allocate(std::size_t capacity) {
        return {static_cast<Slot*>(::operator new(capacity * sizeof(Slot))), capacity};
    }
    static void release(Array& array) noexcept {
        ::operator delete(array.slots);
        array = {};
    }
    static void zero_all(Array& array) noexcept {
        for (std::size_t i = 0; i < array.capacity; ++i) array.slots[i] = {};
    }

    [[nodiscard]] bool moving() const noexcept {
        return next_.slots != nullptr && zeroed_ == next_.capacity;
    }

    void start_resize(Array next) noexcept {
        next_ = next;
        zeroed_ = 0;
        moved_ = 0;
    }

    /// Begins to move to half the capacity. Without memory for that the table stays as it is.
    void shrink() noexcept {
        const std::size_t capacity = current_.capacity / 2;
        void* slots = ::operator new(capacity * sizeof(Slot), std::nothrow);
        if (slots != nullptr) start_resize({static_cast<Slot*>(slots), capacity});
    }

    /// A step of the resize that is on its way, if one is.
    void advance() noexcept {
        if (next_.slots == nullptr) return;
        if (zeroed_ < next_.capacity) {
            for (std::size_t n = 0; n < zeroed_per_step && zeroed_ < next_.capacity; ++n) {
                next_.slots[zeroed_++] = {};
            }
            return;
        }
        for (std::size_t n = 0; n < moved_per_step && moved_ < current_.capacity; ++n) {
            Slot& slot = current_.slots[moved_++];
            if (slot.node == 0 || slot.node == moved) continue;
            place(next_, slot);
            slot.node = moved;
        }
        if (moved_ < current_.capacity) return;
        release(current_);
        current_ = next_;
        next_ = {};
    }

    Array current_;
    Array next_;  // the array a resize moves to; no slots when none is on its way
    std::size_t size_ = 0;
    std::size_t zeroed_ = 0;  // slots of next_ that are ready
    std::size_t moved_ = 0;   // slots of current_ that have been moved to next_
};

}  // namespace kvstem
