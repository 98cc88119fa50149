// SPDX-License-Identifier: MIT
// What RadixCache, Lease and the page source promise to the compiler. Nothing here runs.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "kvstem/radix_cache.hpp"
#include "support/token_rows.hpp"
#include "support/tracing_pages.hpp"

namespace {

using kvstem::Admission;
using kvstem::Namespace;
using kvstem::page_source;
using kvstem::PageId;
using Cache = kvstem::RadixCache<>;
using Lease = Cache::Lease;
using Prompt = std::span<const kvstem::Token>;

// --- The concept.

struct LeastPages {
    [[nodiscard]] bool acquire(std::span<PageId>);
    void retain(PageId);
    void release(std::span<const PageId>);
    [[nodiscard]] std::uint32_t refs(PageId) const;
    [[nodiscard]] std::size_t free_pages() const noexcept;
    [[nodiscard]] std::size_t capacity_pages() const noexcept;
};
struct NoRetain : LeastPages {
    void retain(PageId) = delete;
};
struct NoRefs : LeastPages {
    void refs(PageId) const;
};
struct MutableRefs : LeastPages {
    [[nodiscard]] std::uint32_t refs(PageId);
};
struct ThrowingCount : LeastPages {
    [[nodiscard]] std::size_t free_pages() const;
};
struct AnswersWithIds : LeastPages {
    std::optional<PageId> acquire(std::span<PageId>);
};
struct PlainNumbers : LeastPages {
    bool acquire(std::span<std::uint32_t>);
};
static_assert(page_source<LeastPages>);
static_assert(page_source<kvstem::PagePool>);
static_assert(page_source<kvstem_test::TracingPages>);
static_assert(!page_source<NoRetain> && !page_source<NoRefs> && !page_source<MutableRefs>);
static_assert(!page_source<ThrowingCount> && !page_source<AnswersWithIds>);
static_assert(!page_source<PlainNumbers>);
static_assert(!page_source<int> && !page_source<kvstem_test::PageLedger>);

// --- The lease.

static_assert(!std::is_copy_constructible_v<Lease> && !std::is_copy_assignable_v<Lease>);
static_assert(std::is_nothrow_move_constructible_v<Lease>);
static_assert(std::is_nothrow_move_assignable_v<Lease>);
static_assert(std::is_nothrow_default_constructible_v<Lease>);
static_assert(std::is_nothrow_destructible_v<Lease>);
static_assert(noexcept(std::declval<Lease&>().release()));
static_assert(noexcept(std::declval<const Lease&>().empty()));
static_assert(!std::is_constructible_v<Lease, Cache&>);
static_assert(sizeof(Lease) == sizeof(void*));
static_assert(
    std::is_same_v<decltype(std::declval<const Lease&>().block_table()), std::span<const PageId>>);

// --- The cache. Leases point to it, so it stays where it is.

static_assert(!std::is_copy_constructible_v<Cache> && !std::is_move_constructible_v<Cache>);
static_assert(!std::is_copy_assignable_v<Cache> && !std::is_move_assignable_v<Cache>);
static_assert(std::is_nothrow_destructible_v<Cache>);

static_assert(noexcept(std::declval<const Cache&>().peek(Prompt())));
static_assert(noexcept(std::declval<Cache&>().evict(1)));
static_assert(noexcept(std::declval<Cache&>().clear()));
static_assert(noexcept(std::declval<Cache&>().drop(Namespace{})));
static_assert(noexcept(std::declval<const Cache&>().stats()));
static_assert(noexcept(std::declval<const Cache&>().free_pages()));
static_assert(noexcept(std::declval<const Cache&>().cached_pages()));
static_assert(noexcept(std::declval<const Cache&>().pinned_pages()));
static_assert(noexcept(std::declval<const Cache&>().evictable_pages()));
static_assert(!noexcept(std::declval<Cache&>().acquire(Prompt())));

// Only these may be called on a const cache: the others pin, count or evict.
template <class C>
concept has_acquire = requires(C& cache) { cache.acquire(Prompt()); };
template <class C>
concept has_evict = requires(C& cache) { cache.evict(1); };
static_assert(has_acquire<Cache> && !has_acquire<const Cache>);
static_assert(has_evict<Cache> && !has_evict<const Cache>);
static_assert(std::is_const_v<std::remove_reference_t<decltype(std::declval<Cache&>().pages())>>);

// A page goes in only through a lease: no call takes an id, but the one that counts its owners.
template <class L>
concept publishes_ids = requires(L& lease, std::span<const PageId> pages, Prompt tokens) {
    lease.publish(tokens, pages);
};
static_assert(!publishes_ids<Lease> && !publishes_ids<Cache>);

static_assert(std::is_trivially_copyable_v<kvstem::RadixCacheStats>);
static_assert(std::is_trivially_copyable_v<kvstem::RadixMatch>);
static_assert(std::is_aggregate_v<kvstem::RadixCacheOptions>);
static_assert(std::is_nothrow_move_constructible_v<kvstem::Acquired<Lease>>);
static_assert(!std::is_convertible_v<kvstem::Acquired<Lease>, bool>);
static_assert(!std::is_convertible_v<kvstem::PageId, std::uint32_t>);
static_assert(sizeof(kvstem::LeastRecentlyUsed::NodeData) == 8);

}  // namespace
