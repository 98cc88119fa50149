// SPDX-License-Identifier: MIT
// Runs: the tokens and page values that nodes look into, kept compact while they come and go.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <type_traits>
#include <vector>

#include "../config.hpp"
#include "fetch_ahead.hpp"

namespace kvstem::inline KVSTEM_ABI::detail {

/// Stands where a tree keeps no value per page: takes no room in a run.
struct NoValue {};

/// Allocates runs. A run is what one insertion brought: a header, `pages * P` tokens, one value a
/// page.
///
///     Run            tokens                              values
///     [header 16 B | t0 t1 t2 … … … … … … … … … | dead | v0 v1 … | dead ]
///                    └── live: the first live_pages ──┘
///
/// Nodes are slices of runs, and removal is leaf first, so what is alive of a run is always a
/// prefix of it: a run needs one length and no count of slices.
///
/// Runs lie one after another in segments of up to 256 KB (a small store has smaller ones, so that
/// the one segment which eviction is emptying is a small part of it; and a run of more than an
/// eighth of a segment has one of its own). Cutting and dropping runs leaves holes; when less than
/// 92 % of the held bytes are alive, `clean` moves the live prefixes out of the emptiest segment
/// and gives the segment back. Over time it moves at most three bytes for each
/// that was allocated or dropped, so its cost is a constant factor of the work that caused it; and
/// it never starts on a segment that is more than 85 % alive, so that the ends of segments, which
/// no move can win back, do not keep it busy for ever.
template <class T, class Value>
class RunStore {
  public:
    struct Run {
        std::uint32_t segment;
        std::uint32_t capacity_pages;
        std::uint32_t live_pages;    // 0: dropped
        std::uint32_t deepest_node;  // the node that is the last slice; kept by the tree

        [[nodiscard]] T* tokens() noexcept { return reinterpret_cast<T*>(this + 1); }
        [[nodiscard]] const T* tokens() const noexcept {
            return reinterpret_cast<const T*>(this + 1);
        }
    };
    static_assert(sizeof(Run) == 16 && alignof(T) <= 16 && alignof(Value) <= 16);

    explicit RunStore(std::size_t page_tokens) noexcept : page_tokens_(page_tokens) {}
    RunStore(const RunStore&) = delete;
    RunStore& operator=(const RunStore&) = delete;
    ~RunStore() {
        for (Segment& segment : segments_) ::operator delete(segment.memory);
    }

    /// A run with room for `pages` pages, all of them alive. Throws what operator new throws.
    /// Requires: `fits(pages)`, pages > 0.
    [[nodiscard]] Run* allocate(std::uint32_t pages) {
        Run* run = place(pages);
        if (run == nullptr) throw_bad_alloc();
        live_bytes_ += run_bytes(pages);
        credit_bytes_ += 3 * run_bytes(pages);
        return run;
    }

    /// Declares all but the first `pages` pages of a run dead; 0 drops the run.
    void shrink(Run* run, std::uint32_t pages) noexcept {
        const std::size_t dead = live_size(*run) - (pages == 0 ? 0 : run_bytes(pages));
        run->live_pages = pages;
        live_bytes_ -= dead;
        credit_bytes_ += 3 * dead;
        dead_since_futile_look_ += dead;
        Segment& segment = segments_[run->segment];
        segment.live_bytes -= dead;
        if (segment.live_bytes == 0) give_back(run->segment);
    }

    /// Moves runs out of sparse segments as far as the credit goes. `moved(old, now)` is called
    /// after the content was copied and before the old place is reused. noexcept: without memory to
    /// move to, nothing is moved.
    template <class Moved>
    void clean(Moved&& moved) noexcept {
        while (cleaning_ != none || choose_segment_to_clean()) {
            if (!clean_one_run(moved)) return;
        }
        credit_bytes_ = std::min(credit_bytes_, 4 * segment_bytes);
    }

    /// Where the values of a run begin.
    [[nodiscard]] Value* values(Run* run) const noexcept {
        return reinterpret_cast<Value*>(reinterpret_cast<std::byte*>(run) +
                                        values_offset(run->capacity_pages));
    }
    [[nodiscard]] const Value* values(const Run* run) const noexcept {
        return values(const_cast<Run*>(run));
    }

    /// A number from which `foresee` finds the place again: the segment and the sixteen bytes in
    /// it. 0 for a place beyond what 32 bits can name.
    [[nodiscard]] std::uint32_t clue_of(const Run* run, const T* tokens) const noexcept {
        const auto offset = static_cast<std::size_t>(reinterpret_cast<const std::byte*>(tokens) -
                                                     segments_[run->segment].memory);
        if (offset >= segment_bytes || run->segment >= (1u << 18)) return 0;
        return run->segment << 14 | static_cast<std::uint32_t>(offset / 16);
    }
    /// Asks the processor for the first two lines of what the clue names. Harmless if nothing is
    /// there.
    void foresee(std::uint32_t clue) const noexcept {
        const std::byte* memory = segments_[clue >> 14].memory;
        if (memory == nullptr) return;
        const std::byte* place = memory + std::size_t{clue & 0x3FFF} * 16;
        fetch_ahead(place);
        fetch_ahead(place + 64);
    }

    /// Whether a run of so many pages can be addressed at all.
    [[nodiscard]] bool fits(std::uint64_t pages) const noexcept {
        if (page_tokens_ > SIZE_MAX / 8 / sizeof(T)) return false;
        const std::size_t page_bytes = page_tokens_ * sizeof(T) + value_bytes;
        return pages <= (SIZE_MAX / 4) / page_bytes && pages < 0xFFFF'FFFFu;
    }

    /// What the segments take from the system, and what of it is alive (headers count as alive).
    [[nodiscard]] std::size_t held_bytes() const noexcept { return held_bytes_; }
    [[nodiscard]] std::size_t live_bytes() const noexcept { return live_bytes_; }

  private:
    static constexpr std::size_t segment_bytes = 256 * 1024;
    static constexpr std::size_t smallest_segment_bytes = 16 * 1024;
    static constexpr std::uint32_t none = 0xFFFF'FFFFu;
    static constexpr std::size_t value_bytes = std::is_empty_v<Value> ? 0 : sizeof(Value);

    struct Segment {
        std::byte* memory;       // null: the number is free
        std::size_t size_bytes;  // of memory
        std::size_t used_bytes;  // handed out to runs, dead ones included
        std::size_t live_bytes;
    };

    [[nodiscard]] std::size_t values_offset(std::size_t pages) const noexcept {
        const std::size_t end = sizeof(Run) + pages * page_tokens_ * sizeof(T);
        return (end + alignof(Value) - 1) / alignof(Value) * alignof(Value);
    }
    [[nodiscard]] std::size_t run_bytes(std::size_t pages) const noexcept {
        return (values_offset(pages) + pages * value_bytes + 15) / 16 * 16;
    }
    [[nodiscard]] std::size_t live_size(const Run& run) const noexcept {
        return run.live_pages == 0 ? 0 : run_bytes(run.live_pages);
    }

    /// Finds a place for a run; null when the system has no memory.
    Run* place(std::uint32_t pages) noexcept {
        const std::size_t bytes = run_bytes(pages);
        const std::size_t shared =
            std::clamp(held_bytes_ / 16, smallest_segment_bytes, segment_bytes);
        std::uint32_t number = open_;
        if (bytes > shared / 8) {
            number = add_segment(bytes);
        } else if (number == none ||
                   segments_[number].size_bytes - segments_[number].used_bytes < bytes) {
            number = add_segment(shared);
            if (number != none) close_open_segment(number);
        }
        if (number == none) return nullptr;
        Segment& segment = segments_[number];
        Run* run = ::new (segment.memory + segment.used_bytes) Run{number, pages, pages, 0};
        segment.used_bytes += bytes;
        segment.live_bytes += bytes;
        return run;
    }

    /// The open segment is full: from now on it may be cleaned, or given back if nothing in it
    /// lives.
    void close_open_segment(std::uint32_t next) noexcept {
        const std::uint32_t closed = open_;
        open_ = next;
        if (closed != none && segments_[closed].live_bytes == 0) give_back(closed);
    }

    std::uint32_t add_segment(std::size_t bytes) noexcept {
        if (!reserve_number()) return none;
        void* memory = ::operator new(bytes, std::nothrow);
        if (memory == nullptr) return none;
        std::uint32_t number = free_numbers_.empty() ? static_cast<std::uint32_t>(segments_.size())
                                                     : free_numbers_.back();
        const Segment segment{static_cast<std::byte*>(memory), bytes, 0, 0};
        if (free_numbers_.empty()) {
            segments_.push_back(segment);
        } else {
            free_numbers_.pop_back();
            segments_[number] = segment;
        }
        held_bytes_ += bytes;
        return number;
    }

    /// Room for one more segment in the lists, so that neither adding nor giving back can fail
    /// later.
    bool reserve_number() noexcept {
#if defined(__cpp_exceptions)
        try {
#endif
            if (segments_.size() == segments_.capacity()) {
                segments_.reserve(segments_.size() * 2 + 8);
            }
            free_numbers_.reserve(segments_.capacity());
#if defined(__cpp_exceptions)
        } catch (...) {
            return false;
        }
#endif
        return true;
    }

    void give_back(std::uint32_t number) noexcept {
        Segment& segment = segments_[number];
        if (number == open_) {
            segment.used_bytes = 0;  // nothing in it lives: start again at its beginning
            return;
        }
        if (number == cleaning_) cleaning_ = none;
        held_bytes_ -= segment.size_bytes;
        ::operator delete(segment.memory);
        segment = {nullptr, 0, 0, 0};
        free_numbers_.push_back(number);
    }

    /// Whether so many bytes are dead that moving the rest pays; if so, picks the emptiest segment.
    bool choose_segment_to_clean() noexcept {
        const std::size_t unused =
            open_ == none ? 0 : segments_[open_].size_bytes - segments_[open_].used_bytes;
        const std::uint64_t in_use = held_bytes_ - unused;
        if (std::uint64_t{live_bytes_} * 100 >= in_use * 92) return false;
        if (dead_since_futile_look_ < segment_bytes / 16) return false;
        std::uint32_t best = none;
        double best_share = 0.85;
        for (std::uint32_t i = 0; i < segments_.size(); ++i) {
            const Segment& segment = segments_[i];
            if (segment.memory == nullptr || i == open_) continue;
            const double share =
                static_cast<double>(segment.live_bytes) / static_cast<double>(segment.size_bytes);
            if (share < best_share) {
                best_share = share;
                best = i;
            }
        }
        cleaning_ = best;
        cleaned_bytes_ = 0;
        if (best == none) dead_since_futile_look_ = 0;
        return best != none;
    }

    /// Moves the next live run out of the segment being cleaned. False when the credit is used up
    /// or there is no memory.
    template <class Moved>
    bool clean_one_run(Moved&& moved) noexcept {
        Segment segment = segments_[cleaning_];
        if (cleaned_bytes_ == segment.used_bytes) {
            cleaning_ =
                none;  // runs moved away leave an empty segment, which has given itself back
            return true;
        }
        Run* old = reinterpret_cast<Run*>(segment.memory + cleaned_bytes_);
        const std::size_t bytes = live_size(*old);
        if (bytes > credit_bytes_) return false;
        const std::size_t step = run_bytes(old->capacity_pages);
        if (bytes != 0) {
            Run* now = place(old->live_pages);
            if (now == nullptr) return false;
            credit_bytes_ -= bytes;
            now->deepest_node = old->deepest_node;
            std::memcpy(static_cast<void*>(now->tokens()), old->tokens(),
                        now->live_pages * page_tokens_ * sizeof(T));
            if constexpr (value_bytes != 0) {
                std::memcpy(static_cast<void*>(values(now)), values(old),
                            now->live_pages * value_bytes);
            }
            moved(old, now);
            old->live_pages = 0;
        }
        cleaned_bytes_ += step;
        if (bytes != 0) {
            const std::uint32_t number = cleaning_;
            segments_[number].live_bytes -= bytes;
            if (segments_[number].live_bytes == 0) give_back(number);
        }
        return true;
    }

    [[noreturn]] static void throw_bad_alloc() {
#if defined(__cpp_exceptions)
        throw std::bad_alloc();
#else
        std::abort();
#endif
    }

    std::size_t page_tokens_;
    std::vector<Segment> segments_;
    std::vector<std::uint32_t> free_numbers_;
    std::uint32_t open_ = none;      // the segment that new short runs go to
    std::uint32_t cleaning_ = none;  // the segment whose runs are being moved out
    std::size_t cleaned_bytes_ = 0;  // how far into it
    std::size_t held_bytes_ = 0;
    std::size_t live_bytes_ = 0;
    std::size_t credit_bytes_ = 0;  // how many bytes `clean` may still move
    // Bytes that died since no segment was worth cleaning: looking again is for when that has
    // changed.
    std::size_t dead_since_futile_look_ = segment_bytes;
};

}  // namespace kvstem
