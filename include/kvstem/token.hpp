// SPDX-License-Identifier: MIT
// Tokens, page ids and stamps: the three kinds of number everything else is made of.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "config.hpp"

namespace kvstem::inline KVSTEM_ABI {

/// One element of a sequence, unless a template argument says otherwise. Signed, because the
/// engines this is meant for (llama.cpp, llama2.c) number their vocabulary with `int`.
using Token = std::int32_t;

/// Names a page group: the same P positions in every layer. A strong type, so that a page id and a
/// token cannot be mixed up; the number is the engine's row block, 0 … capacity − 1.
enum class PageId : std::uint32_t {};

/// No page. Never handed out: a pool holds at most 2^32 − 1 page groups.
inline constexpr PageId no_page{0xFFFF'FFFFu};

/// The number behind a page id, for indexing.
[[nodiscard]] constexpr std::uint32_t index_of(PageId page) noexcept {
    return static_cast<std::uint32_t>(page);
}

/// A logical clock value; larger means used more recently. Never wraps in practice: 2^64 uses.
enum class Stamp : std::uint64_t {};

/// How a token type is hashed. The primary template serves every type whose equal values have equal
/// bytes. Specialise it for a type where that does not hold (a float, a struct with padding, an
/// `operator==` that ignores a member), or to choose another hash:
///
///     template <> struct kvstem::token_hash<MyToken> {
///         static std::uint32_t of(const MyToken& token) noexcept { return token.id; }
///     };
///
/// Requires: a token is equal to itself, and equal tokens have equal hashes. A hash only finds
/// candidates; tokens are always compared, so a poor or even constant hash costs time and never
/// correctness.
template <class T>
struct token_hash {
    // Absent `of`: the bytes are hashed in bulk.
};

template <class T>
concept has_own_token_hash = requires(const T& token) {
    { token_hash<T>::of(token) } noexcept -> std::convertible_to<std::uint32_t>;
};

/// True when equal values of the type are known to have equal bytes and unequal ones unequal bytes,
/// so that runs of tokens may be compared by the C library's memcmp and hashed in bulk.
template <class T>
inline constexpr bool compares_as_bytes =
    (std::is_integral_v<T> || std::is_enum_v<T>) && !has_own_token_hash<T>;

/// What a sequence may consist of: any trivially copyable, equality-comparable type of ordinary
/// alignment (but bool) that can be hashed, either by its bytes (no padding, no two encodings of
/// one value) or by `token_hash`. Comparing must not throw.
template <class T>
concept token_type = std::is_trivially_copyable_v<T> && std::equality_comparable<T> &&
                     !std::is_same_v<T, bool> && alignof(T) <= alignof(std::max_align_t) &&
                     (std::has_unique_object_representations_v<T> || has_own_token_hash<T>);

}  // namespace kvstem
