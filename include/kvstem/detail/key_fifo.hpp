// SPDX-License-Identifier: MIT
// The last so many keys that were added: what a ghost queue is made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../config.hpp"
#include "slot_table.hpp"

namespace kvstem::inline KVSTEM_ABI::detail {

/// A first-in, first-out queue of a fixed number of keys, each at most once, and a table to find
/// them. Keys must have well mixed low bits. Complexity: O(1) expected. Throws std::bad_alloc at
/// construction only. 19 to 30 bytes a key.
class KeyFifo {
  public:
    KeyFifo() = default;
    /// Requires: capacity < 2^32.
    explicit KeyFifo(std::size_t capacity) : ring_(capacity), gone_(capacity) {
        places_.reserve(capacity);
    }

    /// Adds a key as the newest; the oldest one goes if there are too many. A key that is there
    /// already stays where it is.
    void add(std::uint64_t key) noexcept {
        if (ring_.empty() || place_of(key) != SlotTable::none) return;
        if (used_ == ring_.size()) {
            if (!gone_[next_]) places_.erase(hash_of(ring_[next_]), next_);
        } else {
            ++used_;
        }
        ring_[next_] = key;
        gone_[next_] = false;
        places_.insert(hash_of(key), next_);
        if (++next_ == ring_.size()) next_ = 0;
    }

    /// Whether the key was there; it is not any more.
    bool take(std::uint64_t key) noexcept {
        const std::uint32_t place = place_of(key);
        if (place == SlotTable::none) return false;
        gone_[place] = true;
        places_.erase(hash_of(key), place);
        return true;
    }

  private:
    static std::uint32_t hash_of(std::uint64_t key) noexcept {
        return static_cast<std::uint32_t>(key);
    }
    [[nodiscard]] std::uint32_t place_of(std::uint64_t key) const noexcept {
        return places_.find(hash_of(key),
                            [&](std::uint32_t place) noexcept { return ring_[place] == key; });
    }

    std::vector<std::uint64_t> ring_;
    std::vector<bool> gone_;  // taken: its place in the ring is dead until it comes round
    SlotTable places_;        // of the keys that are there, in the ring
    std::uint32_t next_ = 0;
    std::size_t used_ = 0;
};

}  // namespace kvstem
