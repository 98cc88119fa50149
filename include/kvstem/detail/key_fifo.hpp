// SPDX-License-Identifier: MIT
// The last so many keys that were added: what a ghost queue is made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../config.hpp"

namespace kvstem::inline KVSTEM_ABI::detail {

/// A first-in, first-out queue of a fixed number of keys, each at most once, and a table to find
/// them. Complexity: O(1) expected. Throws std::bad_alloc at construction only. 16 to 24 bytes a
/// key.
class KeyFifo {
  public:
    KeyFifo() = default;
    explicit KeyFifo(std::size_t capacity) : ring_(capacity), gone_(capacity) {
        std::size_t slots = 16;
        while (slots < capacity * 2) slots *= 2;
        table_.resize(slots);
    }

    /// Adds a key as the newest; the oldest one goes if there are too many. A key that is there
    /// already stays where it is.
    void add(std::uint64_t key) noexcept {
        if (ring_.empty() || find(key) != no_slot) return;
        if (used_ == ring_.size()) {
            if (!gone_[next_]) erase(find(ring_[next_]));
        } else {
            ++used_;
        }
        ring_[next_] = key;
        gone_[next_] = false;
        std::size_t i = home(key);
        while (table_[i] != 0) i = (i + 1) & (table_.size() - 1);
        table_[i] = next_ + 1;
        next_ = next_ + 1 == ring_.size() ? 0 : next_ + 1;
    }

    /// Whether the key was there; it is not any more.
    bool take(std::uint64_t key) noexcept {
        if (ring_.empty()) return false;
        const std::size_t slot = find(key);
        if (slot == no_slot) return false;
        gone_[table_[slot] - 1] = true;
        erase(slot);
        return true;
    }

  private:
    static constexpr std::size_t no_slot = ~std::size_t{0};

    [[nodiscard]] std::size_t home(std::uint64_t key) const noexcept {
        return static_cast<std::size_t>(key) & (table_.size() - 1);
    }
    [[nodiscard]] std::size_t find(std::uint64_t key) const noexcept {
        for (std::size_t i = home(key); table_[i] != 0; i = (i + 1) & (table_.size() - 1)) {
            if (ring_[table_[i] - 1] == key) return i;
        }
        return no_slot;
    }
    void erase(std::size_t gap) noexcept {
        const std::size_t mask = table_.size() - 1;
        for (std::size_t i = (gap + 1) & mask; table_[i] != 0; i = (i + 1) & mask) {
            if (((i - home(ring_[table_[i] - 1])) & mask) < ((i - gap) & mask)) continue;
            table_[gap] = table_[i];
            gap = i;
        }
        table_[gap] = 0;
    }

    std::vector<std::uint64_t> ring_;
    std::vector<bool> gone_;          // taken: its place in the ring is dead until it comes round
    std::vector<std::size_t> table_;  // one more than the place in the ring; 0 is empty
    std::size_t next_ = 0;
    std::size_t used_ = 0;
};

}  // namespace kvstem
