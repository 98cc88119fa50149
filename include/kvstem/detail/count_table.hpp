// SPDX-License-Identifier: MIT
// Counters for the few ids that need one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../config.hpp"

namespace kvstem::inline KVSTEM_ABI::detail {

/// A map from 32-bit ids (below 2^32 − 1) to counts above zero, by open addressing. Ids whose count
/// is zero take no room. `add` throws std::bad_alloc with nothing changed; never shrinks, so an
/// `add` that undoes a `subtract` does not allocate.
class CountTable {
  public:
    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
    [[nodiscard]] std::uint32_t count(std::uint32_t id) const noexcept {
        if (empty()) return 0;
        const Slot& slot = slots_[find(slots_, id)];
        return slot.id == id ? slot.count : 0;
    }

    void add(std::uint32_t id) {
        if (!slots_.empty()) {
            Slot& known = slots_[find(slots_, id)];
            if (known.id == id) {
                ++known.count;
                return;
            }
        }
        if ((size_ + 1) * 2 > slots_.size()) grow();
        slots_[find(slots_, id)] = {id, 1};
        ++size_;
    }

    /// One less; false (nothing changed) if the count is zero.
    bool subtract(std::uint32_t id) noexcept {
        if (empty()) return false;
        const std::size_t place = find(slots_, id);
        if (slots_[place].id != id) return false;
        if (--slots_[place].count == 0) erase(place);
        return true;
    }

    [[nodiscard]] std::size_t bytes() const noexcept { return slots_.capacity() * sizeof(Slot); }

  private:
    struct Slot {
        std::uint32_t id = 0xFFFF'FFFFu;  // no id: the slot is empty
        std::uint32_t count = 0;
    };

    static std::size_t home(const std::vector<Slot>& slots, std::uint32_t id) noexcept {
        // The upper bits of the product: ids at a stride of a power of two spread as well as
        // others.
        return static_cast<std::size_t>(id * 0x9E37'79B1u * std::uint64_t{slots.size()} >> 32);
    }
    /// Where an id stands, or the empty slot where it would.
    static std::size_t find(const std::vector<Slot>& slots, std::uint32_t id) noexcept {
        std::size_t i = home(slots, id);
        while (slots[i].id != id && slots[i].count != 0) i = (i + 1) & (slots.size() - 1);
        return i;
    }
    void grow() {
        std::vector<Slot> larger(slots_.empty() ? 16 : slots_.size() * 2);
        for (const Slot& slot : slots_) {
            if (slot.count != 0) larger[find(larger, slot.id)] = slot;
        }
        slots_.swap(larger);
    }
    void erase(std::size_t gap) noexcept {
        const std::size_t mask = slots_.size() - 1;
        for (std::size_t i = (gap + 1) & mask; slots_[i].count != 0; i = (i + 1) & mask) {
            if (((i - home(slots_, slots_[i].id)) & mask) >= ((i - gap) & mask)) {
                slots_[gap] = slots_[i];
                gap = i;
            }
        }
        slots_[gap] = {};
        --size_;
    }

    std::vector<Slot> slots_;
    std::size_t size_ = 0;
};

}  // namespace kvstem
