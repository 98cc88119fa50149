// SPDX-License-Identifier: MIT
// expect: copy_hook
// A hook that is not told how many rows to copy would copy rows that nobody has computed.

#include <cstddef>
#include <span>

#include "kvstem/radix_cache.hpp"

void begin(kvstem::RadixCache<>& cache, std::span<const kvstem::Token> prompt) {
#ifdef MUST_NOT_COMPILE
    const auto copy = [](kvstem::PageId, kvstem::PageId) {};
#else
    const auto copy = [](kvstem::PageId, kvstem::PageId, std::size_t) {};
#endif
    (void)cache.acquire(prompt, {}, copy);
}
