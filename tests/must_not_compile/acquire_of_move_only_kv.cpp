// SPDX-License-Identifier: MIT
// expect: copyable_kv_snapshot
// A KV type that can only be moved can be taken, and cannot be acquired, which would copy it.

#include <cstddef>
#include <span>

#include "kvstem/prefix_cache.hpp"

struct Kv {
    Kv() = default;
    Kv(Kv&&) noexcept = default;
    [[nodiscard]] std::size_t length() const noexcept { return 0; }
    [[nodiscard]] std::size_t bytes() const noexcept { return 0; }
};

void look_up(kvstem::PrefixCache<Kv>& cache, std::span<const kvstem::Token> prompt) {
#ifdef MUST_NOT_COMPILE
    (void)cache.acquire(prompt);
#else
    (void)cache.take(prompt);
#endif
}
