// SPDX-License-Identifier: MIT
// Fingerprints of pages. They only find candidates: whoever uses one compares the tokens
// afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../token.hpp"
#include "compare.hpp"

namespace kvstem::inline KVSTEM_ABI::detail {

// Two odd constants with no pattern in their bits: the fractional parts of sqrt(2) and sqrt(3).
inline constexpr std::uint64_t hash_factor_a = 0x6A09'E667'F3BC'C909;
inline constexpr std::uint64_t hash_factor_b = 0xBB67'AE85'84CA'A73B;

/// One round: multiply to spread upwards, fold to bring the high bits down again.
constexpr std::uint64_t hash_round(std::uint64_t state, std::uint64_t word,
                                   std::uint64_t factor) noexcept {
    state = (state ^ word) * factor;
    return state ^ (state >> 32);
}

/// A 64-bit fingerprint of `n` bytes. Two independent lanes, because one multiply has to wait for
/// the one before it.
inline std::uint64_t hash_bytes(const unsigned char* bytes, std::size_t n,
                                std::uint64_t seed) noexcept {
    std::uint64_t a = seed + hash_factor_b;
    std::uint64_t b = n;
    std::size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        a = hash_round(a, load_word(bytes + i), hash_factor_a);
        b = hash_round(b, load_word(bytes + i + 8), hash_factor_b);
    }
    if (i + 8 <= n) {
        a = hash_round(a, load_word(bytes + i), hash_factor_a);
        i += 8;
    }
    std::uint64_t tail = 0;
    if (i < n) std::memcpy(&tail, bytes + i, n - i);
    b = hash_round(b, tail, hash_factor_b);
    return hash_round(a, b, hash_factor_a);
}

/// The fingerprint under which a child is filed: all tokens of its first page, mixed with the id of
/// its parent. Every token takes part: siblings often share most of their first page, and a hash of
/// a part of it would pile them up in one place.
template <token_type T>
std::uint32_t page_hash(std::uint32_t parent, const T* page, std::size_t n) noexcept {
    std::uint64_t hash = 0;
    if constexpr (has_own_token_hash<T>) {
        hash = parent + hash_factor_b;
        for (std::size_t i = 0; i < n; ++i) {
            hash = hash_round(hash, token_hash<T>::of(page[i]), hash_factor_a);
        }
    } else {
        hash =
            hash_bytes(reinterpret_cast<const unsigned char*>(page), n * sizeof(T), parent + 1ull);
    }
    return static_cast<std::uint32_t>(hash >> 32) ^ static_cast<std::uint32_t>(hash);
}

/// A cheap key of a page, from its first and its last token: enough to tell most siblings apart
/// without touching either of them. Equal pages have equal keys.
template <token_type T>
std::uint32_t page_key(const T* page, std::size_t n) noexcept {
    if constexpr (compares_as_bytes<T>) {
        const auto first = static_cast<std::uint64_t>(page[0]);
        const auto last = static_cast<std::uint64_t>(page[n - 1]);
        return static_cast<std::uint32_t>((first * hash_factor_a + last) * hash_factor_b >> 32);
    } else {
        const T ends[2] = {page[0], page[n - 1]};
        return page_hash(0, ends, 2);
    }
}

}  // namespace kvstem
