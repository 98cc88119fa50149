// SPDX-License-Identifier: MIT
// What a KV type must offer to be cached as a snapshot, and how a type one does not own offers it.
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>

#include "config.hpp"

namespace kvstem::inline KVSTEM_ABI {

/// How PrefixCache talks to a KV type. The primary template forwards to members; specialise it for
/// a type you do not own:
///
///     template <> struct kvstem::kv_traits<engine::State> {
///         static std::size_t length(const engine::State& kv) noexcept { return kv.n_past; }
///         static std::size_t bytes(const engine::State& kv) noexcept { return kv.blob.size(); }
///     };
///
/// | operation            | meaning                                                 | needed     |
/// | -------------------- | ------------------------------------------------------- | ---------- |
/// | `length(kv)`         | positions held, in tokens; noexcept                     | always     |
/// | `bytes(kv)`          | memory the KV occupies, for the byte capacity; noexcept | always     |
/// | `prefix(kv, n)`      | a copy of the first n positions                         | to be cut  |
/// | `truncate(kv, n)`    | drops all positions from n on; with a copy constructor  | instead    |
/// | `longest_cut(kv, n)` | the greatest length ≤ n it can be cut to, 0 if none;    | if limited |
/// |                      | noexcept                                                |            |
///
/// A type with `prefix`, or with `truncate` and a copy constructor, can be cut. Where both are
/// there, `prefix` is used: it copies n positions instead of all. A type with neither is matched
/// whole or not at all. `longest_cut` is for types that can be cut only here and there (a sliding
/// window that has dropped early positions, a recurrent state with checkpoints); without it every
/// cut is possible.
template <class KvCache>
struct kv_traits {
    // Each function carries its requirement, so that the concepts below see what is missing instead
    // of finding a signature whose body does not compile.
    static std::size_t length(const KvCache& kv) noexcept
        requires requires {
            { kv.length() } noexcept -> std::convertible_to<std::size_t>;
        }
    {
        return static_cast<std::size_t>(kv.length());
    }
    static std::size_t bytes(const KvCache& kv) noexcept
        requires requires {
            { kv.bytes() } noexcept -> std::convertible_to<std::size_t>;
        }
    {
        return static_cast<std::size_t>(kv.bytes());
    }
    static KvCache prefix(const KvCache& kv, std::size_t n)
        requires requires {
            { kv.prefix(n) } -> std::convertible_to<KvCache>;
        }
    {
        return kv.prefix(n);
    }
    static void truncate(KvCache& kv, std::size_t n)
        requires requires { kv.truncate(n); }
    {
        kv.truncate(n);
    }
    static std::size_t longest_cut(const KvCache& kv, std::size_t n) noexcept
        requires requires {
            { kv.longest_cut(n) } noexcept -> std::convertible_to<std::size_t>;
        }
    {
        return static_cast<std::size_t>(kv.longest_cut(n));
    }
};

// One name for each requirement: the compiler's message then says which one is not met.

template <class KvCache>
concept has_length = requires(const KvCache& kv) {
    { kv_traits<KvCache>::length(kv) } noexcept -> std::convertible_to<std::size_t>;
};
template <class KvCache>
concept has_bytes = requires(const KvCache& kv) {
    { kv_traits<KvCache>::bytes(kv) } noexcept -> std::convertible_to<std::size_t>;
};
template <class KvCache>
concept has_prefix = requires(const KvCache& kv, std::size_t n) {
    { kv_traits<KvCache>::prefix(kv, n) } -> std::convertible_to<KvCache>;
};
template <class KvCache>
concept has_truncate =
    requires(KvCache& kv, std::size_t n) { kv_traits<KvCache>::truncate(kv, n); };
template <class KvCache>
concept has_longest_cut = requires(const KvCache& kv, std::size_t n) {
    { kv_traits<KvCache>::longest_cut(kv, n) } noexcept -> std::convertible_to<std::size_t>;
};
template <class KvCache>
concept has_nothrow_move = std::is_nothrow_move_constructible_v<KvCache>;

/// What every KV type must offer: a length, a size, and a move that does not throw (a cache that
/// could lose a snapshot half-way could not promise that a failed call changes nothing).
template <class KvCache>
concept kv_snapshot = std::is_object_v<KvCache> && has_nothrow_move<KvCache> &&
                      has_length<KvCache> && has_bytes<KvCache>;

/// A snapshot of which the beginning can be copied: it serves prompts that leave it half-way.
template <class KvCache>
concept sliceable_kv_snapshot =
    kv_snapshot<KvCache> &&
    (has_prefix<KvCache> || (has_truncate<KvCache> && std::copy_constructible<KvCache>));

/// A snapshot that can be copied as it is, so that it can be handed out and kept.
template <class KvCache>
concept copyable_kv_snapshot =
    kv_snapshot<KvCache> && (has_prefix<KvCache> || std::copy_constructible<KvCache>);

}  // namespace kvstem
