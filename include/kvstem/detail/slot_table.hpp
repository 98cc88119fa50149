// SPDX-License-Identifier: MIT
// A hash table from 32-bit hashes to 32-bit numbers, the things themselves being elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../config.hpp"
#include "fetch_ahead.hpp"

namespace kvstem::inline KVSTEM_ABI::detail {

/// Finds numbers by the hash of what they stand for; whether it is the one looked for, the caller
/// says. Linear probing, at most three quarters full, eight slots a cache line. Erasing closes the
/// gap, so nothing has to be cleaned up later.
///
/// Complexity: O(1) expected; `reserve` O(slots) as it grows. Exceptions: `reserve` throws
/// std::bad_alloc with nothing changed; all else is noexcept, within what was reserved.
class SlotTable {
  public:
    static constexpr std::uint32_t none = 0xFFFF'FFFFu;

    /// Room for so many more numbers.
    void reserve(std::size_t more) {
        const std::size_t wanted = size_ + more;
        if (wanted <= slots_.size() / 4 * 3) return;
        std::size_t slots = slots_.size() < 64 ? 64 : slots_.size();
        while (slots / 4 * 3 < wanted) slots *= 2;
        std::vector<std::uint64_t> larger(slots);
        slots_.swap(larger);
        for (const std::uint64_t slot : larger) {
            if (slot != 0) place(slot);
        }
    }

    void prefetch(std::uint32_t hash) const noexcept {
        if (!slots_.empty()) fetch_ahead(slots_.data() + (hash & mask()));
    }
    /// The first number with this hash for which `is_it(number)` is true; none if there is none.
    template <class IsIt>
    [[nodiscard]] std::uint32_t find(std::uint32_t hash, IsIt&& is_it) const noexcept {
        if (slots_.empty()) return none;
        for (std::size_t i = hash & mask(); slots_[i] != 0; i = (i + 1) & mask()) {
            if (hash_of(slots_[i]) == hash && is_it(number_of(slots_[i]))) {
                return number_of(slots_[i]);
            }
        }
        return none;
    }
    void insert(std::uint32_t hash, std::uint32_t number) noexcept {
        place(slot(hash, number));
        ++size_;
    }
    /// Requires: `old_number` is there, with this hash.
    void replace(std::uint32_t hash, std::uint32_t old_number, std::uint32_t number) noexcept {
        slots_[place_of(hash, old_number)] = slot(hash, number);
    }
    /// Requires: `number` is there, with this hash.
    void erase(std::uint32_t hash, std::uint32_t number) noexcept {
        std::size_t gap = place_of(hash, number);
        for (std::size_t i = (gap + 1) & mask(); slots_[i] != 0; i = (i + 1) & mask()) {
            if (((i - hash_of(slots_[i])) & mask()) < ((i - gap) & mask())) continue;
            slots_[gap] = slots_[i];
            gap = i;
        }
        slots_[gap] = 0;
        --size_;
    }

    [[nodiscard]] std::size_t bytes() const noexcept {
        return slots_.capacity() * sizeof(std::uint64_t);
    }

  private:
    // A slot holds the hash above one more than the number; 0 is an empty one.
    static std::uint64_t slot(std::uint32_t hash, std::uint32_t number) noexcept {
        return std::uint64_t{hash} << 32 | (number + 1ull);
    }
    static std::uint32_t hash_of(std::uint64_t slot) noexcept {
        return static_cast<std::uint32_t>(slot >> 32);
    }
    static std::uint32_t number_of(std::uint64_t slot) noexcept {
        return static_cast<std::uint32_t>(slot) - 1;
    }
    [[nodiscard]] std::size_t mask() const noexcept { return slots_.size() - 1; }

    [[nodiscard]] std::size_t place_of(std::uint32_t hash, std::uint32_t number) const noexcept {
        std::size_t i = hash & mask();
        while (slots_[i] != slot(hash, number)) {
            KVSTEM_ASSERT(slots_[i] != 0);
            i = (i + 1) & mask();
        }
        return i;
    }
    void place(std::uint64_t slot) noexcept {
        std::size_t i = hash_of(slot) & mask();
        while (slots_[i] != 0) i = (i + 1) & mask();
        slots_[i] = slot;
    }

    std::vector<std::uint64_t> slots_;
    std::size_t size_ = 0;
};

}  // namespace kvstem
