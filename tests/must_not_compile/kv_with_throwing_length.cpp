// SPDX-License-Identifier: MIT
// expect: has_length
// A KV type whose length() may throw is refused at the class name.

#include <cstddef>

#include "kvstem/prefix_cache.hpp"

#ifdef MUST_NOT_COMPILE
inline constexpr bool is_noexcept = false;
#else
inline constexpr bool is_noexcept = true;
#endif

struct Kv {
    [[nodiscard]] std::size_t length() const noexcept(is_noexcept) { return 0; }
    [[nodiscard]] std::size_t bytes() const noexcept { return 0; }
};

kvstem::PrefixCache<Kv> cache;
