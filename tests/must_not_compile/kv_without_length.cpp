// SPDX-License-Identifier: MIT
// expect: has_length
// A KV type without length() is refused at the class name.

#include <cstddef>

#include "kvstem/prefix_cache.hpp"

struct Kv {
#ifndef MUST_NOT_COMPILE
    [[nodiscard]] std::size_t length() const noexcept { return 0; }
#endif
    [[nodiscard]] std::size_t bytes() const noexcept { return 0; }
};

kvstem::PrefixCache<Kv> cache;
