// SPDX-License-Identifier: MIT
// expect: has_nothrow_move
// A KV type whose move may throw is refused at the class name.

#include <cstddef>

#include "kvstem/prefix_cache.hpp"

#ifdef MUST_NOT_COMPILE
inline constexpr bool is_noexcept = false;
#else
inline constexpr bool is_noexcept = true;
#endif

struct Kv {
    Kv() = default;
    Kv(Kv&&) noexcept(is_noexcept) {}
    [[nodiscard]] std::size_t length() const noexcept { return 0; }
    [[nodiscard]] std::size_t bytes() const noexcept { return 0; }
};

kvstem::PrefixCache<Kv> cache;
