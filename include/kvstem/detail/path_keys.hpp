// SPDX-License-Identifier: MIT
// A fingerprint for each prefix of a path: what is remembered of pages that are gone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../namespace.hpp"
#include "../token.hpp"
#include "hash.hpp"

namespace kvstem::inline KVSTEM_ABI::detail {

/// The key of an empty path in a namespace.
inline std::uint64_t namespace_key(const Namespace& name) noexcept {
    std::uint64_t key = hash_factor_b;
    for (const auto& part : {name.adapter, name.version, name.salt}) {
        key = part ? hash_bytes(reinterpret_cast<const unsigned char*>(part->data()), part->size(),
                                key + 1)
                   : hash_round(key, 0, hash_factor_a);
    }
    return key;
}

/// Whether a page of n tokens is one word of 32 bits, which needs no hash.
template <token_type T>
constexpr bool is_one_word(std::size_t n) noexcept {
    return !has_own_token_hash<T> && n * sizeof(T) == sizeof(std::uint32_t);
}
inline std::uint32_t word_at(const void* page) noexcept {
    std::uint32_t word = 0;
    std::memcpy(&word, page, sizeof word);
    return word;
}

/// The key of a path that goes on from the one with key `before` by one page. Keys are not verified
/// against tokens: two paths with one key, of 2^64, are taken for the same.
template <token_type T>
std::uint64_t next_key(std::uint64_t before, const T* page, std::size_t n) noexcept {
    if (is_one_word<T>(n)) return hash_round(before, word_at(page), hash_factor_a);
    if constexpr (has_own_token_hash<T>) {
        std::uint64_t key = before;
        for (std::size_t i = 0; i < n; ++i) {
            key = hash_round(key, token_hash<T>::of(page[i]), hash_factor_a);
        }
        return key;
    } else {
        return hash_bytes(reinterpret_cast<const unsigned char*>(page), n * sizeof(T), before);
    }
}

/// The key of one page, whatever comes before it. Of two different pages, one pair of 2^32 has the
/// same.
template <token_type T>
std::uint32_t block_key(const T* page, std::size_t n) noexcept {
    return is_one_word<T>(n) ? word_at(page) : page_hash(0, page, n);
}

}  // namespace kvstem
