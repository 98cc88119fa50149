// SPDX-License-Identifier: MIT
// What PagePool and the kinds of number promise to the compiler. Nothing here runs.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "kvstem/page_pool.hpp"
#include "kvstem/token.hpp"

namespace kvstem_test {

struct alignas(2 * alignof(std::max_align_t)) Wide {
    unsigned char bytes[2 * alignof(std::max_align_t)];
    friend bool operator==(const Wide&, const Wide&) = default;
};

}  // namespace kvstem_test

namespace {

using kvstem::PageId;
using kvstem::PagePool;
using kvstem::Stamp;

// --- The pool is a value, so that a cache can own it.

static_assert(kvstem::page_source<PagePool>);
static_assert(std::copyable<PagePool>);
static_assert(std::is_nothrow_move_constructible_v<PagePool>);
static_assert(std::is_nothrow_destructible_v<PagePool>);
static_assert(!std::is_default_constructible_v<PagePool>);
static_assert(!std::is_convertible_v<std::size_t, PagePool>);  // explicit

static_assert(noexcept(std::declval<PagePool&>().acquire()));
static_assert(noexcept(std::declval<PagePool&>().acquire(std::span<PageId>())));
static_assert(noexcept(std::declval<const PagePool&>().free_pages()));
static_assert(noexcept(std::declval<const PagePool&>().capacity_pages()));
static_assert(noexcept(std::declval<const PagePool&>().bytes()));
// A page that is not in the state the call needs is told by an exception.
static_assert(!noexcept(std::declval<PagePool&>().retain(PageId{})));
static_assert(!noexcept(std::declval<PagePool&>().release(PageId{})));
static_assert(!noexcept(std::declval<PagePool&>().release(std::span<const PageId>())));
static_assert(!noexcept(std::declval<const PagePool&>().refs(PageId{})));

static_assert(std::is_same_v<decltype(std::declval<PagePool&>().acquire()), std::optional<PageId>>);
template <class Pages>
concept takes_pages = requires(Pages& pages) { pages.acquire(); };
static_assert(takes_pages<PagePool> && !takes_pages<const PagePool>);
template <class Pages>
concept releases_a_number = requires(Pages& pages) { pages.release(std::uint32_t{0}); };
static_assert(!releases_a_number<PagePool>);

// --- Numbers of different kinds do not mix.

static_assert(sizeof(PageId) == 4 && sizeof(Stamp) == 8 && sizeof(kvstem::Token) == 4);
static_assert(std::is_trivially_copyable_v<PageId> && std::is_trivially_copyable_v<Stamp>);
static_assert(!std::is_convertible_v<std::uint32_t, PageId>);
static_assert(!std::is_convertible_v<PageId, std::uint32_t>);
static_assert(!std::is_convertible_v<Stamp, std::uint64_t>);
static_assert(!std::is_constructible_v<PageId, Stamp>);
static_assert(!std::equality_comparable_with<PageId, kvstem::Token>);
static_assert(std::is_signed_v<kvstem::Token>);
static_assert(kvstem::index_of(PageId{7}) == 7 &&
              kvstem::index_of(kvstem::no_page) == 0xFFFF'FFFFu);
static_assert(Stamp{2} > Stamp{1});

// --- What is compared as bytes, and what hashes itself.

enum class Word : std::uint16_t {};
static_assert(kvstem::token_type<Word> && kvstem::token_type<std::uint8_t>);
static_assert(kvstem::token_type<std::int64_t> && !kvstem::token_type<bool>);
static_assert(!kvstem::token_type<double> && !kvstem::token_type<void>);
static_assert(kvstem::compares_as_bytes<kvstem::Token> && kvstem::compares_as_bytes<Word>);
static_assert(!kvstem::has_own_token_hash<kvstem::Token>);

static_assert(!kvstem::token_type<kvstem_test::Wide>);

}  // namespace
