// SPDX-License-Identifier: MIT
// When each recently touched block was touched, in which class, how often: hazard's memory.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "../config.hpp"
#include "../token.hpp"

namespace kvstem::inline KVSTEM_ABI::detail {

/// Octaves of age, in requests: bucket 0 is age 0, bucket b > 0 is ages 2^(b−1) … 2^b − 1, the last
/// one is all that is older.
inline constexpr std::size_t age_buckets = 24;

constexpr std::size_t age_bucket(std::uint64_t age) noexcept {
    const auto octave = static_cast<std::size_t>(std::bit_width(age));
    return octave < age_buckets ? octave : age_buckets - 1;
}
/// The age at which bucket `b` begins.
constexpr std::uint64_t bucket_begin(std::size_t b) noexcept {
    return b == 0 ? 0 : std::uint64_t{1} << (b - 1);
}

/// The most recently touched blocks by key, in the order of their touches, those of one request
/// that have one class together in a run. Runs know their bucket of age; `advance` moves them on.
///
///     runs      oldest ─ [t 3, class 17, 4 live] ─ [t 5, class 0, 9 live] ─ [t 6, …] ─ newest
///     entries   oldest ─ e e e e ───────────────── e e e e e e e e e ────── …        ─ newest
///
/// Complexity: O(1) expected a call; `advance` O(buckets + runs that cross an edge), and a run
/// crosses each edge once. 24 bytes an entry and 11 to 22 for finding it. Exceptions: `reserve`
/// throws std::bad_alloc; all else is noexcept, within what was reserved.
class TouchHistory {
  public:
    static constexpr std::uint32_t none = 0xFFFF'FFFFu;
    static constexpr std::uint32_t most_counted = 4;

    struct Run {
        std::uint64_t time = 0;
        std::uint32_t live = 0;  // entries
        std::uint32_t older = none;
        std::uint32_t newer = none;
        std::uint16_t block_class = 0;
        std::uint8_t bucket = 0;
    };

    [[nodiscard]] std::size_t size() const noexcept { return size_; }

    /// Room for so many more entries, each in a run of its own.
    void reserve(std::size_t more) {
        const std::size_t wanted = size_ + more;
        if (wanted <= reserved_) return;
        std::size_t slots = slots_.size() < 64 ? 64 : slots_.size();
        while (slots / 4 * 3 < wanted) slots *= 2;
        const std::size_t room = slots / 4 * 3;
        entries_.reserve(room);
        runs_.reserve(room);
        if (slots != slots_.size()) {
            std::vector<std::uint64_t> larger(slots);
            slots_.swap(larger);
            for (const std::uint64_t slot : larger) {
                if (slot != 0) place(entries_[entry_of(slot)].key, entry_of(slot));
            }
        }
        reserved_ = room;
    }

    void prefetch(std::uint64_t key) const noexcept {
        __builtin_prefetch(slots_.data() + home(key));
    }
    /// The entry with a key; none if there is none.
    [[nodiscard]] std::uint32_t find(std::uint64_t key) const noexcept {
        if (slots_.empty()) return none;
        const std::size_t mask = slots_.size() - 1;
        for (std::size_t i = home(key); slots_[i] != 0; i = (i + 1) & mask) {
            if (slots_[i] >> 32 == key >> 32 && entries_[entry_of(slots_[i])].key == key) {
                return entry_of(slots_[i]);
            }
        }
        return none;
    }

    [[nodiscard]] std::uint64_t key(std::uint32_t entry) const noexcept {
        return entries_[entry].key;
    }
    [[nodiscard]] std::uint32_t count(std::uint32_t entry) const noexcept {
        return (entries_[entry].run_and_count & 3u) + 1;
    }
    [[nodiscard]] std::uint32_t run_of(std::uint32_t entry) const noexcept {
        return entries_[entry].run_and_count >> 2;
    }
    [[nodiscard]] const Run& run(std::uint32_t run) const noexcept { return runs_[run]; }
    [[nodiscard]] PageId page(std::uint32_t entry) const noexcept { return entries_[entry].page; }
    void set_page(std::uint32_t entry, PageId page) noexcept { entries_[entry].page = page; }

    /// The entry touched the longest ago. Requires: not empty.
    [[nodiscard]] std::uint32_t oldest() const noexcept { return oldest_; }

    /// So many of the oldest entries will soon be looked for.
    void prefetch_oldest(std::size_t entries) const noexcept {
        std::uint32_t entry = oldest_;
        for (; entries > 0 && entry != none; --entries) {
            prefetch(entries_[entry].key);
            entry = entries_[entry].newer;
        }
    }

    /// A new run, of this moment. It must get entries.
    [[nodiscard]] std::uint32_t begin_run(std::uint64_t now, std::uint16_t block_class) noexcept {
        std::uint32_t run = free_run_;
        if (run != none) {
            free_run_ = runs_[run].newer;
        } else {
            run = static_cast<std::uint32_t>(runs_.size());
            runs_.push_back({});
        }
        runs_[run] = {now, 0, newest_run_, none, block_class, 0};
        if (newest_run_ != none) runs_[newest_run_].newer = run;
        newest_run_ = run;
        for (std::size_t b = 1; b < age_buckets && next_across_[b] == none; ++b) {
            set_next_across(b, run);
        }
        return run;
    }
    /// A new entry, the newest of all, in the newest run.
    std::uint32_t add(std::uint64_t key, std::uint32_t run, std::uint32_t count) noexcept {
        std::uint32_t entry = free_entry_;
        if (entry != none) {
            free_entry_ = entries_[entry].newer;
        } else {
            entry = static_cast<std::uint32_t>(entries_.size());
            entries_.push_back({});
        }
        entries_[entry].key = key;
        entries_[entry].page = no_page;
        place(key, entry);
        ++size_;
        append(entry, run, count);
        return entry;
    }
    /// An entry that has left its run becomes the newest of all, in the newest run.
    void touch(std::uint32_t entry, std::uint32_t run, std::uint32_t count) noexcept {
        unlink(entry);
        append(entry, run, count);
    }
    /// So many entries of a run are about to be touched or removed.
    void leave_run(std::uint32_t run, std::uint32_t entries) noexcept {
        Run& at = runs_[run];
        at.live -= entries;
        if (at.live != 0) return;
        for (std::size_t b = at.bucket + 1u; b < age_buckets && next_across_[b] == run; ++b) {
            set_next_across(b, at.newer);
        }
        if (at.older != none) runs_[at.older].newer = at.newer;
        (at.newer != none ? runs_[at.newer].older : newest_run_) = at.older;
        at.newer = free_run_;
        free_run_ = run;
    }
    /// Forgets an entry that has left its run.
    void remove(std::uint32_t entry) noexcept {
        erase(entries_[entry].key, entry);
        unlink(entry);
        entries_[entry].newer = free_entry_;
        free_entry_ = entry;
        --size_;
    }

    /// Moves every run whose age has crossed an edge to its bucket. `moved(run, from, to)` is
    /// called for each edge crossed.
    template <class Moved>
    void advance(std::uint64_t now, Moved&& moved) noexcept {
        // The youngest edge first: a run that crosses several at once crosses them in their order.
        for (std::size_t b = 1; b < age_buckets; ++b) {
            while (now >= due_[b]) {
                Run& run = runs_[next_across_[b]];
                moved(run, b - 1, b);
                run.bucket = static_cast<std::uint8_t>(b);
                set_next_across(b, run.newer);
            }
        }
    }

    [[nodiscard]] std::size_t bytes() const noexcept {
        return entries_.capacity() * sizeof(Entry) + runs_.capacity() * sizeof(Run) +
               slots_.capacity() * sizeof(std::uint64_t);
    }

  private:
    struct Entry {
        std::uint64_t key = 0;
        std::uint32_t older = none;
        std::uint32_t newer = none;
        PageId page = no_page;            // the owner's
        std::uint32_t run_and_count = 0;  // count − 1 in the low two bits
    };
    static_assert(sizeof(Entry) == 24);
    static constexpr std::uint64_t never = ~std::uint64_t{0};

    // A slot holds the upper half of the key, which says where it belongs and is compared first,
    // and one more than the entry's number.
    static std::uint32_t entry_of(std::uint64_t slot) noexcept {
        return static_cast<std::uint32_t>(slot) - 1;
    }
    [[nodiscard]] std::size_t home(std::uint64_t key_or_slot) const noexcept {
        return static_cast<std::size_t>(key_or_slot >> 32) & (slots_.size() - 1);
    }
    void place(std::uint64_t key, std::uint32_t entry) noexcept {
        const std::size_t mask = slots_.size() - 1;
        std::size_t i = home(key);
        while (slots_[i] != 0) i = (i + 1) & mask;
        slots_[i] = (key >> 32 << 32) | (entry + 1ull);
    }
    void erase(std::uint64_t key, std::uint32_t entry) noexcept {
        const std::size_t mask = slots_.size() - 1;
        std::size_t gap = home(key);
        while (entry_of(slots_[gap]) != entry || slots_[gap] == 0) gap = (gap + 1) & mask;
        for (std::size_t i = (gap + 1) & mask; slots_[i] != 0; i = (i + 1) & mask) {
            if (((i - home(slots_[i])) & mask) < ((i - gap) & mask)) continue;
            slots_[gap] = slots_[i];
            gap = i;
        }
        slots_[gap] = 0;
    }
    void append(std::uint32_t entry, std::uint32_t run, std::uint32_t count) noexcept {
        entries_[entry].run_and_count = run << 2 | (count - 1);
        entries_[entry].older = newest_;
        entries_[entry].newer = none;
        (newest_ != none ? entries_[newest_].newer : oldest_) = entry;
        newest_ = entry;
        ++runs_[run].live;
    }
    void unlink(std::uint32_t entry) noexcept {
        const Entry& at = entries_[entry];
        (at.older != none ? entries_[at.older].newer : oldest_) = at.newer;
        (at.newer != none ? entries_[at.newer].older : newest_) = at.older;
    }

    void set_next_across(std::size_t bucket, std::uint32_t run) noexcept {
        next_across_[bucket] = run;
        due_[bucket] = run == none ? never : runs_[run].time + bucket_begin(bucket);
    }
    template <class Number>
    static constexpr std::array<Number, age_buckets> filled_with(Number number) noexcept {
        std::array<Number, age_buckets> numbers{};
        for (Number& each : numbers) each = number;
        return numbers;
    }

    std::vector<Entry> entries_;
    std::vector<Run> runs_;
    std::vector<std::uint64_t> slots_;
    std::size_t size_ = 0;
    std::size_t reserved_ = 0;
    std::uint32_t oldest_ = none;
    std::uint32_t newest_ = none;
    std::uint32_t newest_run_ = none;
    std::uint32_t free_entry_ = none;
    std::uint32_t free_run_ = none;
    // For each edge the oldest run that has not crossed it yet, and when it will.
    std::array<std::uint32_t, age_buckets> next_across_ = filled_with(none);
    std::array<std::uint64_t, age_buckets> due_ = filled_with(never);
};

}  // namespace kvstem
