// SPDX-License-Identifier: MIT
// Storage for nodes named by 32-bit ids: grows and shrinks by segments, never moves a node.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include "../config.hpp"

namespace kvstem::inline KVSTEM_ABI::detail {

/// Slots of one `Hot` and one `Cold` record each, named by ids from 1 (0 stands for "none"). The
/// two lie apart, so that what every walk reads stays within one cache line. Ids come from the
/// lowest segment that has one, so that after a peak the upper segments run empty and go back to
/// the system, which a plain vector would keep for ever. An id is reused; whoever must notice that
/// compares a generation in the record.
///
/// Complexity: access O(1), two loads; take and give O(1) plus a scan of one bit per segment.
/// Exceptions: `take` throws what operator new throws, with nothing changed; all else is noexcept.
template <class Hot, class Cold>
class NodePool {
    static_assert(std::is_trivially_copyable_v<Hot> && std::is_trivially_copyable_v<Cold>);

  public:
    static constexpr std::uint32_t segment_slots = 1024;
    static constexpr std::uint32_t segments_for_a_spare = 8;

    NodePool() = default;
    NodePool(const NodePool&) = delete;
    NodePool& operator=(const NodePool&) = delete;
    ~NodePool() {
        for (Segment* segment : segments_) delete segment;
        delete spare_;
    }

    /// Takes a free id. What its records hold is left over from their last use.
    std::uint32_t take() {
        const std::uint32_t s = segment_with_room();
        Segment* segment = segments_[s];
        if (segment == nullptr) {
            segment = spare_ != nullptr && s != 0 ? std::exchange(spare_, nullptr) : new Segment(s);
            segments_[s] = segment;
        }
        const std::uint32_t slot = segment->first_free;
        segment->first_free = segment->next_free[slot];
        if (segment->first_free == segment_slots) room_[s / 64] &= ~(1ull << (s % 64));
        ++segment->live;
        ++live_;
        return s * segment_slots + slot;
    }

    /// Gives an id back. Its segment goes back to the system with its last id, but for the first,
    /// and for one that a large pool keeps for the next time.
    void give(std::uint32_t id) noexcept {
        const std::uint32_t s = id / segment_slots;
        Segment* segment = segments_[s];
        --live_;
        room_[s / 64] |= 1ull << (s % 64);
        if (s / 64 < first_room_word_) first_room_word_ = s / 64;
        segment->next_free[id % segment_slots] = static_cast<std::uint16_t>(segment->first_free);
        segment->first_free = id % segment_slots;
        if (--segment->live != 0 || s == 0) return;
        segments_[s] = nullptr;
        // In a large pool the spare costs little, and a cache whose size goes back and forth over a
        // segment's edge does not allocate and free 70 KB at every step.
        delete std::exchange(spare_, segment);
        if (live_ < segments_for_a_spare * segment_slots) delete std::exchange(spare_, nullptr);
    }

    [[nodiscard]] Hot& operator[](std::uint32_t id) noexcept {
        return segments_[id / segment_slots]->hot[id % segment_slots];
    }
    [[nodiscard]] const Hot& operator[](std::uint32_t id) const noexcept {
        return segments_[id / segment_slots]->hot[id % segment_slots];
    }
    [[nodiscard]] Cold& cold(std::uint32_t id) noexcept {
        return segments_[id / segment_slots]->cold[id % segment_slots];
    }
    [[nodiscard]] const Cold& cold(std::uint32_t id) const noexcept {
        return segments_[id / segment_slots]->cold[id % segment_slots];
    }

    [[nodiscard]] std::size_t live() const noexcept { return live_; }

    /// One past the largest id that may be in use: the bound of a scan over all records.
    [[nodiscard]] std::uint32_t end_id() const noexcept {
        return static_cast<std::uint32_t>(segments_.size()) * segment_slots;
    }

    /// Whether the record behind an id can be read at all; it may still be a free one.
    [[nodiscard]] bool has_storage(std::uint32_t id) const noexcept {
        return id / segment_slots < segments_.size() && segments_[id / segment_slots] != nullptr;
    }

    [[nodiscard]] std::size_t bytes() const noexcept {
        std::size_t segments = spare_ != nullptr ? 1 : 0;
        for (const Segment* segment : segments_) segments += segment != nullptr ? 1 : 0;
        return segments * sizeof(Segment) + segments_.capacity() * sizeof(Segment*) +
               room_.capacity() * sizeof(std::uint64_t);
    }

  private:
    struct alignas(64) Segment {
        explicit Segment(std::uint32_t number) noexcept {
            for (std::uint32_t i = 0; i < segment_slots; ++i) {
                next_free[i] = static_cast<std::uint16_t>(i + 1);
            }
            if (number == 0) first_free = 1;  // id 0 means "none"
        }
        // Value-initialised: a record that was never taken reads as free in a scan over all ids.
        Hot hot[segment_slots]{};
        Cold cold[segment_slots]{};
        std::uint16_t next_free[segment_slots];
        std::uint32_t first_free = 0;
        std::uint32_t live = 0;
    };

    /// The lowest segment with a free id; adds one when there is none.
    std::uint32_t segment_with_room() {
        for (; first_room_word_ < room_.size(); ++first_room_word_) {
            if (room_[first_room_word_] != 0) {
                return static_cast<std::uint32_t>(first_room_word_ * 64) +
                       static_cast<std::uint32_t>(std::countr_zero(room_[first_room_word_]));
            }
        }
        const std::size_t added = segments_.size();
        // The last segment stays unused: no id may be 2^32 − 1, and end_id() must not wrap.
        if (added + 1 >= (1ull << 32) / segment_slots) throw_out_of_ids();
        if (room_.size() * 64 <= added) room_.push_back(0);
        segments_.push_back(nullptr);
        room_[added / 64] |= 1ull << (added % 64);
        first_room_word_ = added / 64;
        return static_cast<std::uint32_t>(added);
    }

    [[noreturn]] static void throw_out_of_ids() {
#if defined(__cpp_exceptions)
        throw std::bad_alloc();
#else
        std::abort();
#endif
    }

    std::vector<Segment*> segments_;   // null where a segment is not in memory now
    Segment* spare_ = nullptr;         // an empty one, kept for the next time
    std::vector<std::uint64_t> room_;  // one bit a segment: it has a free id
    std::size_t first_room_word_ = 0;  // no word of room_ before this one is non-zero
    std::size_t live_ = 0;
};

}  // namespace kvstem
