// SPDX-License-Identifier: MIT
// expect: deleted
// A cache is not copied: its snapshots could be gigabytes, and two caches would share no room.

#include <cstddef>

#include "kvstem/prefix_cache.hpp"

struct Kv {
    [[nodiscard]] std::size_t length() const noexcept { return 0; }
    [[nodiscard]] std::size_t bytes() const noexcept { return 0; }
};

kvstem::PrefixCache<Kv> cache;
#ifdef MUST_NOT_COMPILE
kvstem::PrefixCache<Kv> copy = cache;
#endif
