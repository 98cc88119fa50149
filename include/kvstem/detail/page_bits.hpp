// SPDX-License-Identifier: MIT
// Sets of page ids as bits, a word of neighbours at a time.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "../token.hpp"

namespace kvstem::inline KVSTEM_ABI::detail {

/// The n lowest bits of a word, 0 < n <= 64.
constexpr std::uint64_t lowest_bits(std::size_t n) noexcept {
    return ~0ull >> (64 - n);
}

/// Bit i: byte i of eight, each of which is 0 or 1.
inline std::uint64_t bits_of_eight(const std::uint8_t* bytes) noexcept {
    if constexpr (std::endian::native == std::endian::little) {
        std::uint64_t eight = 0;
        std::memcpy(&eight, bytes, 8);
        return (eight * 0x0102'0408'1020'4080u) >> 56;  // no two of the sums meet in one bit
    } else {
        std::uint64_t bits = 0;
        for (std::size_t i = 0; i < 8; ++i) bits |= std::uint64_t{bytes[i]} << i;
        return bits;
    }
}

/// Bit k: after page k of up to 64 pages a run of neighbours ends, each of which is one more than
/// the one before. Requires: not empty.
inline std::uint64_t ends_of_runs(std::span<const PageId> pages) noexcept {
    const std::size_t last = pages.size() - 1;
    if (pages.size() == 64) {  // most blocks of long runs are one
        std::uint32_t any = 0;
        for (std::uint32_t i = 0; i < 64; ++i) any |= index_of(pages[i]) ^ (index_of(pages[0]) + i);
        if (any == 0) return 1ull << last;
    }
    // Where else runs end cannot be predicted, so nothing here branches on it; g++ 12 and clang 14
    // make vectors of the comparisons.
    std::uint8_t ends[64] = {};
    for (std::size_t k = 0; k < last; ++k) {
        ends[k] = index_of(pages[k + 1]) != index_of(pages[k]) + 1 ? 1 : 0;
    }
    ends[last] = 1;
    std::uint64_t bits = 0;
    for (std::size_t i = 0; i <= last; i += 8) bits |= bits_of_eight(ends + i) << i;
    return bits;
}

/// Calls `visit(word, bits, n)` for the pages of a span, n neighbours of one 64-bit word together.
/// Pages that were taken in one go usually are neighbours, and then this is a call or two per 64
/// pages.
template <class Visit>
void for_each_word(std::span<const PageId> pages, Visit&& visit) {
    while (!pages.empty()) {
        const auto block = pages.first(pages.size() < 64 ? pages.size() : 64);
        std::size_t begin = 0;
        for (std::uint64_t ends = ends_of_runs(block); ends != 0; ends &= ends - 1) {
            const auto end = static_cast<std::size_t>(std::countr_zero(ends)) + 1;
            const std::uint32_t first = index_of(block[begin]);
            const std::size_t n = end - begin;
            const std::size_t in_first = n < 64 - first % 64 ? n : 64 - first % 64;
            visit(first / 64, lowest_bits(in_first) << (first % 64), in_first);
            const std::uint32_t next = first + static_cast<std::uint32_t>(in_first);
            if (in_first < n) visit(next / 64, lowest_bits(n - in_first), n - in_first);
            begin = end;
        }
        pages = pages.subspan(block.size());
    }
}

/// Which pages of 0 … capacity − 1 are in the set: one bit each.
class PageBits {
  public:
    explicit PageBits(std::size_t capacity)
        : capacity_(capacity), words_(capacity / 64 + (capacity % 64 != 0 ? 1 : 0)) {}

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
        count_ += done;
        if (!all_new) erase(pages.first(done));
        return all_new;
    }
    void erase(std::span<const PageId> pages) noexcept {
        if (count_ == 0) return;
        for_each_word(pages, [&](std::uint32_t word, std::uint64_t bits, std::size_t) noexcept {
            count_ -= static_cast<std::size_t>(std::popcount(words_[word] & bits));
            words_[word] &= ~bits;
        });
    }
    [[nodiscard]] std::size_t count() const noexcept { return count_; }
    [[nodiscard]] std::size_t bytes() const noexcept { return words_.capacity() * 8; }

  private:
    std::size_t capacity_;
    std::size_t count_ = 0;
    std::vector<std::uint64_t> words_;
};

}  // namespace kvstem
