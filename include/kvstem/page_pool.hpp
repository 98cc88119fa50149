// SPDX-License-Identifier: MIT
// PagePool: page groups by id, free or counted; and the concept by which an engine's own allocator
// takes its place.
#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "config.hpp"
#include "detail/count_table.hpp"
#include "detail/page_bits.hpp"
#include "errors.hpp"
#include "token.hpp"

namespace kvstem::inline KVSTEM_ABI {

/// What RadixCache needs of an allocator of page groups. Ids are 0 … capacity_pages() − 1, and the
/// capacity stays what it was when the cache was made.
///
/// | call                          | must do                                                      |
/// | ----------------------------- | ------------------------------------------------------------ |
/// | `acquire(span<PageId>)`       | fill the whole span with free pages, each then held once; or |
/// |                               | return false and take none                                   |
/// | `retain(id)`                  | one more hold on a held page; may throw                      |
/// | `release(span<const PageId>)` | give back one hold of each; a page is free after its last.   |
/// |                               | Must not throw for pages that are held: leases release as    |
/// |                               | they die                                                     |
/// | `refs(id)`                    | the number of holds, 0 for a free page                       |
/// | `free_pages()`                | how many are free; noexcept                                  |
/// | `capacity_pages()`            | how many there are; noexcept                                 |
template <class Pages>
concept page_source = requires(Pages& pages, const Pages& view, std::span<PageId> out,
                               std::span<const PageId> in, PageId id) {
    { pages.acquire(out) } -> std::same_as<bool>;
    pages.retain(id);
    pages.release(in);
    { view.refs(id) } -> std::convertible_to<std::uint32_t>;
    { view.free_pages() } noexcept -> std::convertible_to<std::size_t>;
    { view.capacity_pages() } noexcept -> std::convertible_to<std::size_t>;
};

/// A fixed number of page groups, each of which is free or held by a counted number of owners. It
/// knows ids only; the memory behind them is the engine's.
///
/// | state of a page | refs | acquire   | retain   | release         |
/// | --------------- | ---- | --------- | -------- | --------------- |
/// | free            | 0    | → held, 1 | error    | error           |
/// | held            | n    | –         | → n + 1  | → n − 1, or free |
///
/// Free pages are handed out in ascending order, going round; each acquire begins where the largest
/// release since the one before gave pages back, or else where that one ended. So pages that were
/// given back together are taken together and stay side by side in the engine's memory, and every
/// run is repeatable. A page costs one bit; only pages with more than one owner have a counter.
/// (What a RadixCache evicts for a request it hands on itself while no fork holds pages of its
/// tree, in the order of the evicted nodes; so the pages of a request are no longer neighbours when
/// much has come and gone that shares nothing.)
///
/// Complexity: acquire and release O(pages), a whole word of 64 neighbouring free ids at a time,
/// and one load for each 262,144 pages passed over; retain and refs O(1). Memory: capacity / 8
/// bytes, and 8 to 16 bytes per page with several owners.
/// Exceptions: InvalidArgument for a page that is not in the state the call needs, std::bad_alloc
/// from `retain`; both change nothing.
/// Threads: const calls may run side by side; anything else needs the pool alone.
class PagePool {
  public:
    /// At most 2^32 − 1 pages; throws InvalidArgument beyond.
    explicit PagePool(std::size_t capacity_pages);

    [[nodiscard]] std::size_t capacity_pages() const noexcept { return capacity_; }
    [[nodiscard]] std::size_t free_pages() const noexcept { return free_; }

    /// Takes one free page; nothing when there is none.
    [[nodiscard]] std::optional<PageId> acquire() noexcept {
        PageId page = no_page;
        if (!acquire(std::span(&page, 1))) return std::nullopt;
        return page;
    }
    /// Takes as many pages as the span has places; or none, and returns false (G2).
    [[nodiscard]] bool acquire(std::span<PageId> out) noexcept;

    /// One more owner for a held page.
    void retain(PageId page) {
        require_held(page, "retained");
        extra_.add(index_of(page));
    }

    /// One owner less; true if that was the last one and the page is free now.
    bool release(PageId page) {
        const bool last = release_one(page);
        if (last) begin_at(page, 1);
        return last;
    }
    /// One owner less for each page of the span. If one of them has no owner to lose (it is free,
    /// or stands in the span more often than it is held), nothing is released at all.
    void release(std::span<const PageId> pages);

    /// The number of owners of a page, 0 if it is free. Throws InvalidArgument for an id outside
    /// the pool.
    [[nodiscard]] std::uint32_t refs(PageId page) const {
        require_in_range(page);
        return is_free(index_of(page)) ? 0 : 1 + extra_.count(index_of(page));
    }

    [[nodiscard]] std::size_t bytes() const noexcept {
        return (free_bits_.capacity() + summary_.capacity() + top_.capacity()) * 8 + extra_.bytes();
    }

  private:
    static constexpr std::uint64_t bit(std::uint32_t index) noexcept {
        return 1ull << (index % 64);
    }
    [[nodiscard]] bool is_free(std::uint32_t index) const noexcept {
        return (free_bits_[index / 64] & bit(index)) != 0;
    }
    void require_in_range(PageId page) const {
        if (index_of(page) >= capacity_) {
            detail::fail<InvalidArgument>("page %u is outside the pool of %zu pages",
                                          index_of(page), capacity_);
        }
    }
    void require_held(PageId page, const char* verb) const {
        require_in_range(page);
        if (is_free(index_of(page))) {
            detail::fail<InvalidArgument>("page %u is %s but nobody holds it", index_of(page),
                                          verb);
        }
    }
    void mark_free(std::size_t word, std::uint64_t bits, std::size_t n) noexcept {
        free_bits_[word] |= bits;
        summary_[word / 64] |= 1ull << (word % 64);
        top_[word / 4096] |= 1ull << (word / 64 % 64);
        free_ += n;
    }
    void mark_held(std::size_t word, std::uint64_t bits, std::size_t n) noexcept {
        // Without a branch: whether a word runs empty cannot be predicted.
        const auto mask = [](bool empty, std::size_t at) {
            return std::uint64_t{empty} << (at % 64);
        };
        free_ -= n;
        free_bits_[word] &= ~bits;
        summary_[word / 64] &= ~mask(free_bits_[word] == 0, word);
        top_[word / 4096] &= ~mask(summary_[word / 64] == 0, word / 64);
    }
    /// The same for whole words, all of whose pages are free.
    void mark_words_held(std::size_t word, std::size_t n) noexcept {
        free_ -= n * 64;
        while (n != 0) {
            const std::size_t here = std::min(n, 64 - word % 64);  // have one summary word
            std::fill_n(free_bits_.begin() + static_cast<std::ptrdiff_t>(word), here, 0);
            const std::uint64_t words = detail::lowest_bits(here) << (word % 64);
            const std::uint64_t left = summary_[word / 64] &= ~words;
            top_[word / 4096] &= ~(std::uint64_t{left == 0} << (word / 64 % 64));
            word += here;
            n -= here;
        }
    }
    /// Releases a page, without a say in where the next acquire begins.
    bool release_one(PageId page) {
        require_held(page, "released");
        if (!extra_.empty() && extra_.subtract(index_of(page))) return false;
        mark_free(index_of(page) / 64, bit(index_of(page)), 1);
        return true;
    }
    /// Of all releases since the last acquire the largest decides where the next one begins.
    void begin_at(PageId page, std::size_t released) noexcept {
        if (released <= largest_release_) return;
        largest_release_ = released;
        next_ = index_of(page) / 64;
    }
    /// The bits of a word that stand for pages of this pool: all, but for the last word.
    [[nodiscard]] std::uint64_t bits_in_pool(std::size_t word) const noexcept {
        const std::size_t left = capacity_ - word * 64;
        return left >= 64 ? ~0ull : detail::lowest_bits(left);
    }
    [[nodiscard]] std::size_t first_free_word_from(std::size_t word) const noexcept;
    std::size_t take_neighbours(std::span<PageId> out) noexcept;
    std::size_t take_words_behind(std::size_t n) noexcept;
    static void write_neighbours(std::span<PageId> out, std::uint32_t first,
                                 std::size_t n) noexcept;
    bool release_neighbours(std::span<const PageId> pages) noexcept;

    std::size_t capacity_;
    std::size_t free_ = 0;
    std::vector<std::uint64_t> free_bits_;  // one bit a page
    std::vector<std::uint64_t> summary_;    // one bit a word of free_bits_: it is not zero
    std::vector<std::uint64_t> top_;        // one bit a word of summary_, likewise
    std::size_t next_ = 0;                  // the word of free_bits_ where the next search begins
    std::size_t largest_release_ = 0;       // pages of the release that decided that
    detail::CountTable extra_;              // owners beyond the first
};

inline PagePool::PagePool(std::size_t capacity_pages) : capacity_(capacity_pages) {
    if (capacity_pages > 0xFFFF'FFFFu) {
        detail::fail<InvalidArgument>("a pool of %zu pages exceeds 2^32 - 1", capacity_pages);
    }
    const std::size_t words = capacity_pages / 64 + (capacity_pages % 64 != 0 ? 1 : 0);
    free_bits_.resize(words);
    summary_.resize((words + 63) / 64);
    top_.resize((summary_.size() + 63) / 64);
    for (std::size_t word = 0; word < words; ++word) {
        mark_free(word, bits_in_pool(word), std::min<std::size_t>(capacity_pages - word * 64, 64));
    }
}

inline bool PagePool::acquire(std::span<PageId> out) noexcept {
    if (out.size() > free_) return false;
    largest_release_ = 0;
    while (!out.empty()) {
        if (free_bits_[next_] == 0) next_ = first_free_word_from(next_);
        out = out.subspan(take_neighbours(out));
    }
    return true;
}

/// The first word with a free page at or after `word`, going round. Requires: there is one.
inline std::size_t PagePool::first_free_word_from(std::size_t word) const noexcept {
    std::size_t group = word / 64;
    std::uint64_t words = summary_[group] & (~0ull << (word % 64));
    if (words == 0) {
        std::size_t groups = group / 64;
        std::uint64_t found = top_[groups] & (~1ull << (group % 64));
        while (found == 0) {
            if (++groups == top_.size()) groups = 0;
            found = top_[groups];
        }
        group = groups * 64 + static_cast<std::size_t>(std::countr_zero(found));
        words = summary_[group];
    }
    return group * 64 + static_cast<std::size_t>(std::countr_zero(words));
}

/// Writes n neighbouring ids to the front of `out`; the places behind them may be overwritten.
inline void PagePool::write_neighbours(std::span<PageId> out, std::uint32_t first,
                                       std::size_t n) noexcept {
    // Whole blocks while there is room: short runs of any length then cost no mispredicted branch.
    // Counted from the id before the first, because g++ 12 makes vectors of sixteen sums, but not
    // of a number and fifteen sums.
    constexpr std::uint32_t block = 16;
    const std::uint32_t before = first - 1;
    std::size_t i = 0;
    for (; i < n && i + block <= out.size(); i += block) {
        PageId* to = out.data() + i;
        const std::uint32_t base = before + static_cast<std::uint32_t>(i);
        for (std::uint32_t k = 0; k < block; ++k) to[k] = PageId{base + (k + 1)};
    }
    for (; i < n; ++i) out[i] = PageId{first + static_cast<std::uint32_t>(i)};
}

/// Takes the first free page of the word `next_` and its free neighbours behind it, as many as are
/// wanted. `next_` becomes the word of the last one. Returns how many.
inline std::size_t PagePool::take_neighbours(std::span<PageId> out) noexcept {
    KVSTEM_ASSERT(free_bits_[next_] != 0);
    const auto first = static_cast<std::size_t>(std::countr_zero(free_bits_[next_]));
    const auto id = static_cast<std::uint32_t>(next_ * 64 + first);
    const auto run = static_cast<std::size_t>(std::countr_one(free_bits_[next_] >> first));
    std::size_t n = std::min(run, out.size());
    mark_held(next_, detail::lowest_bits(n) << first, n);
    if (n < out.size() && first + n == 64) n += take_words_behind(out.size() - n);
    KVSTEM_ASSERT(n <= out.size());
    write_neighbours(out, id, n);
    return n;
}

/// Takes up to n free neighbours from the beginning of the word behind `next_` on. `next_` becomes
/// the word of the last one. Returns how many.
inline std::size_t PagePool::take_words_behind(std::size_t n) noexcept {
    const std::size_t behind = free_bits_.size() - 1 - next_;
    const std::size_t most = std::min(n / 64, behind);
    std::size_t words = 0;
    while (words < most && free_bits_[next_ + 1 + words] == ~0ull) ++words;
    mark_words_held(next_ + 1, words);
    next_ += words;
    if (words == behind) return words * 64;
    const auto run = static_cast<std::size_t>(std::countr_one(free_bits_[next_ + 1]));
    const std::size_t rest = std::min(run, n - words * 64);
    if (rest != 0) mark_held(++next_, detail::lowest_bits(rest), rest);
    return words * 64 + rest;
}

inline void PagePool::release(std::span<const PageId> pages) {
    if (extra_.empty() && release_neighbours(pages)) return;
    std::size_t done = 0;
    std::size_t freed = 0;
    while (done < pages.size() && index_of(pages[done]) < capacity_ &&
           !is_free(index_of(pages[done]))) {
        freed += release_one(pages[done++]) ? 1 : 0;
    }
    if (done == pages.size()) {
        if (freed != 0) begin_at(pages[0], freed);
        return;
    }
    // Undo. The counters have room for it, because they only shrank since.
    for (std::size_t i = done; i-- > 0;) {
        const std::uint32_t index = index_of(pages[i]);
        if (!is_free(index)) {
            extra_.add(index);
            continue;
        }
        mark_held(index / 64, bit(index), 1);
    }
    require_held(pages[done], "released");
    detail::fail<InvalidArgument>("page %u is released more often than it is held",
                                  index_of(pages[done]));
}

/// Releases pages that all are held once; false (nothing changed) if one of them is not.
inline bool PagePool::release_neighbours(std::span<const PageId> pages) noexcept {
    std::size_t done = 0;
    bool held = true;
    detail::for_each_word(
        pages, [&](std::uint32_t word, std::uint64_t bits, std::size_t n) noexcept {
            held = held && word < free_bits_.size() && (bits & ~bits_in_pool(word)) == 0 &&
                   (free_bits_[word] & bits) == 0;
            if (!held) return;
            mark_free(word, bits, n);
            done += n;
        });
    if (held) {
        if (!pages.empty()) begin_at(pages[0], pages.size());
        return true;
    }
    detail::for_each_word(pages.first(done),
                          [&](std::uint32_t word, std::uint64_t bits, std::size_t n) noexcept {
                              mark_held(word, bits, n);
                          });
    return false;
}

}  // namespace kvstem
