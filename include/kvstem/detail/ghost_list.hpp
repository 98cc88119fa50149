// SPDX-License-Identifier: MIT
// Keys in the order of their last use, which know how far back they are, roughly.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "../config.hpp"
#include "slot_table.hpp"

namespace kvstem::inline KVSTEM_ABI::detail {

/// A least-recently-used list of keys without anything behind them, divided into zones: zone z ends
/// after `ends[z]` places, counted from the newest. The list is as long as the last zone's end.
///
///     newest ─ k k k │ k k k │ k k k k k k │ k k k …
///              zone 0  zone 1     zone 2     zone 3
///
/// Complexity: O(1) expected a call, O(zones) for `use`. Exceptions: construction throws
/// std::bad_alloc; all else never throws. 35 to 46 bytes a key. Keys must have well mixed low bits.
class GhostList {
  public:
    static constexpr std::size_t zones = 4;
    static constexpr std::size_t no_zone = zones;
    using Ends = std::array<std::size_t, zones>;

    GhostList() = default;
    /// Requires: 0 < ends[0] < ends[1] < …
    explicit GhostList(const Ends& ends) : ends_(ends) {
        last_of_.fill(none);
        ghosts_.reserve(ends.back());
        places_.reserve(ends.back());
    }

    [[nodiscard]] std::size_t most() const noexcept { return ends_.back(); }
    [[nodiscard]] std::size_t bytes() const noexcept {
        return ghosts_.capacity() * sizeof(Ghost) + places_.bytes();
    }

    /// The zone in which a key is, no_zone if it is in none.
    [[nodiscard]] std::size_t zone_of(std::uint64_t key) const noexcept {
        const std::uint32_t ghost = place_of(key);
        return ghost == none ? no_zone : ghosts_[ghost].zone;
    }

    /// Makes a key the newest; if it is new and the list is full, the oldest one goes.
    void use(std::uint64_t key) noexcept {
        std::uint32_t ghost = place_of(key);
        const bool is_new = ghost == none;
        const bool grows = is_new && ghosts_.size() < most();
        if (grows) {
            ghost = static_cast<std::uint32_t>(ghosts_.size());
            shift(zones - 1, ghost);
            ghosts_.push_back({});
        } else {
            if (is_new) {
                ghost = oldest_;  // it becomes the ghost of this key
                places_.erase(hash_of(ghosts_[ghost].key), ghost);
            }
            if (ghost != newest_) {
                const Ghost at = ghosts_[ghost];
                shift(at.zone, ghost);
                if (last_of_[at.zone] == ghost) last_of_[at.zone] = at.newer;
                ghosts_[at.newer].older = at.older;
                (at.older != none ? ghosts_[at.older].newer : oldest_) = at.newer;
            }
        }
        if (is_new) places_.insert(hash_of(key), ghost);
        ghosts_[ghost].key = key;
        ghosts_[ghost].zone = 0;
        if (ghost == newest_) return;
        ghosts_[ghost].newer = none;
        ghosts_[ghost].older = newest_;
        (newest_ != none ? ghosts_[newest_].newer : oldest_) = ghost;
        newest_ = ghost;
        for (std::size_t zone = 0; grows && zone < zones; ++zone) {
            if (ghosts_.size() == ends_[zone]) last_of_[zone] = oldest_;
        }
    }

  private:
    static constexpr std::uint32_t none = SlotTable::none;

    struct Ghost {
        std::uint64_t key = 0;
        std::uint32_t newer = none;
        std::uint32_t older = none;
        std::uint8_t zone = 0;
    };

    static std::uint32_t hash_of(std::uint64_t key) noexcept {
        return static_cast<std::uint32_t>(key);
    }
    [[nodiscard]] std::uint32_t place_of(std::uint64_t key) const noexcept {
        return places_.find(
            hash_of(key), [&](std::uint32_t ghost) noexcept { return ghosts_[ghost].key == key; });
    }
    /// The ghosts of the first zones are about to move on by one place: the last of each goes over
    /// into the next zone. `front` is the ghost that comes before all of them.
    void shift(std::size_t zones_before, std::uint32_t front) noexcept {
        for (std::size_t zone = 0; zone < zones_before; ++zone) {
            const std::uint32_t last = last_of_[zone];
            if (last == none) return;  // the list ends before this zone does
            ghosts_[last].zone = static_cast<std::uint8_t>(zone + 1);
            last_of_[zone] = last == newest_ ? front : ghosts_[last].newer;
        }
    }

    Ends ends_{};
    std::array<std::uint32_t, zones> last_of_{};  // the ghost at the last place of each zone
    std::vector<Ghost> ghosts_;
    SlotTable places_;  // of the keys, in `ghosts_`
    std::uint32_t newest_ = none;
    std::uint32_t oldest_ = none;
};

}  // namespace kvstem
