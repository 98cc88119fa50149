// SPDX-License-Identifier: MIT
// Sets of page ids as bits, a word of neighbours at a time.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "../token.hpp"

namespace kvstem::inline KVSTEM_ABI::detail {

/// How many leading pages of a span are neighbours, each one more than the one before; at most
/// `most`.
inline std::size_t neighbours(std::span<const PageId> pages, std::size_t most) noexcept {
    constexpr std::size_t step = 8;  // compared without a branch in between, so several at a time
    const std::size_t n = pages.size() < most ? pages.size() : most;
    const std::uint32_t first = index_of(pages[0]);
    std::size_t i = 0;
    while (i + step <= n) {
        std::uint32_t different = 0;
        for (std::size_t k = 0; k < step; ++k) {
            different |= index_of(pages[i + k]) ^ (first + static_cast<std::uint32_t>(i + k));
        }
        if (different != 0) break;
        i += step;
    }
    while (i < n && index_of(pages[i]) == first + i) ++i;
    return i;
}

/// Calls `visit(word, bits, n)` for the pages of a span, n neighbours of one 64-bit word together.
/// Pages that were taken in one go usually are neighbours, and then this is a call per 64 pages.
template <class Visit>
void for_each_word(std::span<const PageId> pages, Visit&& visit) {
    while (!pages.empty()) {
        const std::uint32_t first = index_of(pages[0]);
        const std::size_t n = neighbours(pages, 64 - first % 64);
        const std::uint64_t bits = n == 64 ? ~0ull : ((1ull << n) - 1) << (first % 64);
        visit(first / 64, bits, n);
        pages = pages.subspan(n);
    }
}

/// Which pages of 0 … capacity − 1 are in the set: one bit each.
class PageBits {
  public:
    explicit PageBits(std::size_t capacity) : capacity_(capacity), words_((capacity + 63) / 64) {}

    [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

    [[nodiscard]] bool contains(PageId page) const noexcept {
        return (words_[index_of(page) / 64] >> (index_of(page) % 64) & 1) != 0;
    }
    [[nodiscard]] bool contains_any(std::span<const PageId> pages) const noexcept {
        std::uint64_t found = 0;
        for_each_word(pages, [&](std::uint32_t word, std::uint64_t bits, std::size_t) noexcept {
            found |= words_[word] & bits;
        });
        return found != 0;
    }
    /// Adds pages that are new; false (nothing changed) if one is in the set already, or in the
    /// span twice.
    [[nodiscard]] bool insert_new(std::span<const PageId> pages) noexcept {
        std::size_t done = 0;
        bool all_new = true;
        for_each_word(pages, [&](std::uint32_t word, std::uint64_t bits, std::size_t n) noexcept {
            all_new = all_new && (words_[word] & bits) == 0;
            if (!all_new) return;
            words_[word] |= bits;
            done += n;
        });
        if (!all_new) erase(pages.first(done));
        return all_new;
    }
    void erase(std::span<const PageId> pages) noexcept {
        for_each_word(pages, [&](std::uint32_t word, std::uint64_t bits, std::size_t) noexcept {
            words_[word] &= ~bits;
        });
    }
    [[nodiscard]] std::size_t count() const noexcept {
        std::size_t n = 0;
        for (const std::uint64_t word : words_) n += static_cast<std::size_t>(std::popcount(word));
        return n;
    }
    [[nodiscard]] std::size_t bytes() const noexcept { return words_.capacity() * 8; }

  private:
    std::size_t capacity_;
    std::vector<std::uint64_t> words_;
};

}  // namespace kvstem
