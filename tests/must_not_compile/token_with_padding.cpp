// SPDX-License-Identifier: MIT
// expect: token_type
// A token type whose equal values may have different bytes needs a token_hash of its own.

#include <cstddef>
#include <cstdint>

#include "kvstem/prefix_cache.hpp"

struct Kv {
    [[nodiscard]] std::size_t length() const noexcept { return 0; }
    [[nodiscard]] std::size_t bytes() const noexcept { return 0; }
};

struct Padded {
    char kind;
    int id;
    friend bool operator==(const Padded&, const Padded&) = default;
};

#ifndef MUST_NOT_COMPILE
template <>
struct kvstem::token_hash<Padded> {
    static std::uint32_t of(const Padded& token) noexcept {
        return static_cast<std::uint32_t>(token.id);
    }
};
#endif

kvstem::PrefixCache<Kv, Padded> cache;
