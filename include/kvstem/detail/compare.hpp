// SPDX-License-Identifier: MIT
// How many leading tokens two runs share, at the speed of the C library's memcmp.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../token.hpp"

namespace kvstem::inline KVSTEM_ABI::detail {

// memcmp says whether, not where. So a long run is compared in blocks that are large enough to hide
// the cost of the call; only inside the one block that differs is the place looked for.
inline constexpr std::size_t compare_block_bytes = 16384;
inline constexpr std::size_t compare_step_bytes = 256;

/// Eight bytes as a number, lowest address in the lowest bits on a little-endian machine.
inline std::uint64_t load_word(const unsigned char* from) noexcept {
    std::uint64_t word;
    std::memcpy(&word, from, sizeof word);
    return word;
}

/// The number of equal leading bytes, looked for word by word. For short runs and last steps.
inline std::size_t common_bytes_by_word(const unsigned char* a, const unsigned char* b,
                                        std::size_t n) noexcept {
    std::size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const std::uint64_t difference = load_word(a + i) ^ load_word(b + i);
        if (difference != 0) {
            const int bits = std::endian::native == std::endian::little
                                 ? std::countr_zero(difference)
                                 : std::countl_zero(difference);
            return i + static_cast<std::size_t>(bits) / 8;
        }
    }
    while (i < n && a[i] == b[i]) ++i;
    return i;
}

/// The number of equal leading bytes of two runs of `n` bytes. O(result).
inline std::size_t common_bytes(const unsigned char* a, const unsigned char* b,
                                std::size_t n) noexcept {
    std::size_t i = 0;
    std::size_t block = compare_block_bytes;
    while (n - i >= compare_step_bytes) {
        if (block > n - i) block = n - i;
        if (std::memcmp(a + i, b + i, block) == 0) {
            i += block;
        } else if (block > compare_step_bytes) {
            // The difference is inside this block: from here on in small steps, the last of which
            // fails and leaves the rest to the word loop.
            n = i + block;
            block = compare_step_bytes;
        } else {
            break;
        }
    }
    return i + common_bytes_by_word(a + i, b + i, n - i);
}

/// The number of equal leading tokens of two runs of `n` tokens. O(result).
template <token_type T>
std::size_t common_tokens(const T* a, const T* b, std::size_t n) noexcept {
    if constexpr (compares_as_bytes<T>) {
        return common_bytes(reinterpret_cast<const unsigned char*>(a),
                            reinterpret_cast<const unsigned char*>(b), n * sizeof(T)) /
               sizeof(T);
    } else {
        std::size_t i = 0;
        while (i < n && a[i] == b[i]) ++i;
        return i;
    }
}

}  // namespace kvstem
