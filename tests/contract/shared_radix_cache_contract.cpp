// SPDX-License-Identifier: MIT
// What the shared form promises to the compiler: all that RadixCache does, under a lock. Nothing here
// runs.

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

#include "kvstem/shared_radix_cache.hpp"

namespace {

using kvstem::PageId;
using Cache = kvstem::SharedRadixCache<>;
using Lease = Cache::Lease;
using Prompt = std::span<const kvstem::Token>;

static_assert(!std::is_copy_constructible_v<Lease> && !std::is_copy_assignable_v<Lease>);
static_assert(std::is_nothrow_move_constructible_v<Lease>);
static_assert(std::is_nothrow_move_assignable_v<Lease>);
static_assert(std::is_nothrow_destructible_v<Lease>);
static_assert(std::is_nothrow_default_constructible_v<Lease>);
static_assert(std::is_nothrow_move_constructible_v<kvstem::Acquired<Lease>>);
static_assert(!std::is_constructible_v<Lease, Cache&>);
static_assert(
    std::is_same_v<decltype(std::declval<const Lease&>().block_table()), std::span<const PageId>>);

static_assert(!std::is_copy_constructible_v<Cache> && !std::is_move_constructible_v<Cache>);
static_assert(!std::is_copy_assignable_v<Cache> && !std::is_move_assignable_v<Cache>);
static_assert(std::is_nothrow_destructible_v<Cache>);

// Locking may throw where looking alone would not, except where a destructor has to end in it.
static_assert(noexcept(std::declval<Lease&>().release()));
static_assert(noexcept(std::declval<const Lease&>().empty()));
static_assert(noexcept(std::declval<Cache&>().evict(1)));
static_assert(noexcept(std::declval<Cache&>().clear()));
static_assert(noexcept(std::declval<Cache&>().drop({})));
static_assert(!noexcept(std::declval<Cache&>().acquire(Prompt())));

// What `inspect` shows is read-only.
struct Look {
    template <class Inner>
    bool operator()(Inner&) const {
        return std::is_const_v<Inner>;
    }
};
static_assert(std::is_same_v<decltype(std::declval<const Cache&>().inspect(Look())), bool>);
template <class C>
concept has_acquire = requires(C& cache) { cache.acquire(Prompt()); };
static_assert(has_acquire<Cache> && !has_acquire<const Cache>);

}  // namespace
