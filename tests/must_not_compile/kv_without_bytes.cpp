// SPDX-License-Identifier: MIT
// expect: has_bytes
// A KV type without bytes() is refused at the class name.

#include <cstddef>

#include "kvstem/prefix_cache.hpp"

struct Kv {
    [[nodiscard]] std::size_t length() const noexcept { return 0; }
#ifndef MUST_NOT_COMPILE
    [[nodiscard]] std::size_t bytes() const noexcept { return 0; }
#endif
};

kvstem::PrefixCache<Kv> cache;
