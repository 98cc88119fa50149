// SPDX-License-Identifier: MIT
// What PrefixCache and its concepts promise to the compiler. Nothing here runs.

#include <cstddef>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kvstem/prefix_cache.hpp"
#include "support/archetypes.hpp"

namespace kvstem_test {

struct Padded {
    char a;
    int b;
    friend bool operator==(const Padded&, const Padded&) = default;
};
struct Dense {
    int a;
    int b;
    friend bool operator==(const Dense&, const Dense&) = default;
};

}  // namespace kvstem_test

namespace {

using namespace kvstem_test;
using kvstem::copyable_kv_snapshot;
using kvstem::kv_snapshot;
using kvstem::sliceable_kv_snapshot;

// --- The concepts against the archetypes: kv_snapshot, sliceable, copyable.

template <class Kv, bool Snapshot, bool Sliceable, bool Copyable>
inline constexpr bool is_seen_as =
    kv_snapshot<Kv> == Snapshot && sliceable_kv_snapshot<Kv> == Sliceable &&
    copyable_kv_snapshot<Kv> == Copyable;

static_assert(is_seen_as<WholeKv, true, false, true>);
static_assert(is_seen_as<CountingKv, true, true, true>);
static_assert(is_seen_as<PrefixKv, true, true, true>);
static_assert(is_seen_as<MoveOnlyKv, true, false, false>);
static_assert(is_seen_as<PrefixOnlyKv, true, true, true>);
static_assert(is_seen_as<UnassignableKv, true, true, true>);
static_assert(is_seen_as<WindowKv<4>, true, true, true>);
static_assert(is_seen_as<CheckpointKv<4>, true, true, true>);
static_assert(kvstem::has_longest_cut<WindowKv<4>> && !kvstem::has_longest_cut<CountingKv>);

static_assert(is_seen_as<int, false, false, false>);
static_assert(is_seen_as<void, false, false, false>);
static_assert(is_seen_as<CountingKv&, false, false, false>);
static_assert(is_seen_as<std::vector<int>, false, false, false>);
static_assert(is_seen_as<std::string, false, false, false>);

struct NoLength {
    [[nodiscard]] std::size_t bytes() const noexcept { return 0; }
};
struct NoBytes {
    [[nodiscard]] std::size_t length() const noexcept { return 0; }
};
struct ThrowingLength : NoLength {
    [[nodiscard]] std::size_t length() const { return 0; }
};
struct LengthOfNoNumber : NoLength {
    [[nodiscard]] std::string length() const noexcept { return {}; }
};
struct MutableLength : NoLength {
    [[nodiscard]] std::size_t length() noexcept { return 0; }
};
struct ThrowingMove : WholeKv {
    ThrowingMove(const ThrowingMove&) = default;
    // NOLINTNEXTLINE(performance-noexcept-move-constructor): that is the point of it
    ThrowingMove(ThrowingMove&& other) : WholeKv(std::move(other)) {}
};
static_assert(!kvstem::has_length<NoLength> && kvstem::has_bytes<NoLength>);
static_assert(kvstem::has_length<NoBytes> && !kvstem::has_bytes<NoBytes>);
static_assert(!kvstem::has_length<ThrowingLength>);
static_assert(!kvstem::has_length<LengthOfNoNumber>);
static_assert(!kvstem::has_length<MutableLength>);
static_assert(!kvstem::has_nothrow_move<ThrowingMove>);
static_assert(!kv_snapshot<NoLength> && !kv_snapshot<NoBytes> && !kv_snapshot<ThrowingMove>);

/// Can be truncated but not copied: taken whole only.
struct MoveOnlyTruncating : MoveOnlyKv {
    void truncate(std::size_t) {}
};
static_assert(is_seen_as<MoveOnlyTruncating, true, false, false>);

/// A prefix of another type that does not convert is no prefix.
struct ForeignPrefix : WholeKv {
    [[nodiscard]] int prefix(std::size_t) const { return 0; }
};
static_assert(!kvstem::has_prefix<ForeignPrefix>);

// --- The cache.

using Cache = kvstem::PrefixCache<CountingKv>;
using MoveOnlyCache = kvstem::PrefixCache<MoveOnlyKv>;
using Prompt = std::span<const kvstem::Token>;

static_assert(!std::is_copy_constructible_v<Cache> && !std::is_copy_assignable_v<Cache>);
static_assert(std::is_nothrow_destructible_v<Cache>);
static_assert(!std::is_convertible_v<kvstem::SnapshotCapacity, Cache>);

template <class C>
concept has_acquire = requires(C& cache, Prompt prompt) { cache.acquire(prompt); };
template <class C, class Kv>
concept stores = requires(C& cache, Prompt prompt) { cache.store(prompt, std::declval<Kv>()); };
static_assert(has_acquire<Cache> && !has_acquire<MoveOnlyCache>);
static_assert(has_acquire<kvstem::PrefixCache<PrefixOnlyKv>>);
static_assert(stores<Cache, CountingKv> && stores<Cache, const CountingKv&>);
static_assert(stores<MoveOnlyCache, MoveOnlyKv> && !stores<MoveOnlyCache, const MoveOnlyKv&>);

static_assert(noexcept(std::declval<const Cache&>().peek(Prompt())));
static_assert(noexcept(std::declval<Cache&>().evict()));
static_assert(noexcept(std::declval<Cache&>().clear()));
static_assert(noexcept(std::declval<Cache&>().drop({})));
static_assert(noexcept(std::declval<const Cache&>().stats()));
static_assert(noexcept(std::declval<const Cache&>().size()));
static_assert(noexcept(std::declval<const Cache&>().capacity()));
static_assert(!noexcept(std::declval<Cache&>().acquire(Prompt())));

// Only these may be called on a const cache: the others count or stamp.
static_assert(!has_acquire<const Cache>);
template <class C>
concept has_take = requires(C& cache, Prompt prompt) { cache.take(prompt); };
static_assert(has_take<Cache> && has_take<MoveOnlyCache> && !has_take<const Cache>);

static_assert(std::is_aggregate_v<kvstem::SnapshotCapacity>);
static_assert(std::is_trivially_copyable_v<kvstem::PrefixCacheStats>);
static_assert(std::is_nothrow_move_constructible_v<Cache::Hit>);
static_assert(std::is_nothrow_move_constructible_v<MoveOnlyCache::Hit>);

// --- Tokens.

static_assert(kvstem::token_type<kvstem::Token> && kvstem::token_type<char>);
static_assert(kvstem::token_type<Dense> && !kvstem::token_type<Padded>);
static_assert(!kvstem::token_type<float>);
static_assert(!kvstem::token_type<std::string>);

}  // namespace
