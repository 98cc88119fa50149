// SPDX-License-Identifier: MIT
// What reference/ promises to the compiler. Nothing here runs.

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "kvstem/kv_traits.hpp"
#include "kvstem/radix_cache.hpp"
#include "kvstem/reference/batcher.hpp"
#include "kvstem/reference/decoder.hpp"
#include "kvstem/reference/kv.hpp"
#include "kvstem/reference/paged_kv.hpp"
#include "kvstem/reference/sampler.hpp"
#include "kvstem/reference/tokenizer.hpp"

namespace {

using namespace kvstem::reference;

// --- What the decoder needs of a KV.

static_assert(kv_view<ContiguousKv> && kv_view<PagedKvView>);
static_assert(kv_rows<PagedKvView> && kv_slots<PagedKvView>);
static_assert(!kv_view<PagedKvStore> && !kv_view<int>);

struct ReadOnly {
    [[nodiscard]] KvShape shape() const;
    [[nodiscard]] std::size_t length() const noexcept;
    [[nodiscard]] std::span<const float> key(std::size_t, std::size_t) const;
    [[nodiscard]] std::span<const float> value(std::size_t, std::size_t) const;
};
struct ThrowingCommit : ReadOnly {
    void reserve(std::size_t);
    std::span<float> key_slot(std::size_t, std::size_t);
    std::span<float> value_slot(std::size_t, std::size_t);
    void commit(std::size_t);
};
struct Complete : ThrowingCommit {
    void commit(std::size_t) noexcept;
};
static_assert(kv_view<Complete>);
static_assert(kv_rows<ReadOnly> && !kv_slots<ReadOnly> && !kv_view<ReadOnly>);
static_assert(!kv_view<ThrowingCommit>);  // a step has to end, or not to have begun

// --- The contiguous KV is a snapshot of PrefixCache.

static_assert(kvstem::sliceable_kv_snapshot<ContiguousKv> &&
              kvstem::copyable_kv_snapshot<ContiguousKv>);
static_assert(kvstem::has_prefix<ContiguousKv> && kvstem::has_truncate<ContiguousKv>);
static_assert(std::is_nothrow_move_constructible_v<ContiguousKv>);
static_assert(std::is_nothrow_move_assignable_v<ContiguousKv>);
static_assert(!std::is_default_constructible_v<ContiguousKv>);
static_assert(noexcept(std::declval<const ContiguousKv&>() == std::declval<const ContiguousKv&>()));

// --- A view owns nothing and is cheap to copy.

static_assert(std::is_trivially_copyable_v<PagedKvView>);
static_assert(std::is_constructible_v<PagedKvView, PagedKvStore&, std::span<const kvstem::PageId>,
                                      std::size_t>);
static_assert(!std::is_constructible_v<PagedKvView, const PagedKvStore&,
                                       std::span<const kvstem::PageId>, std::size_t>);

// --- A copy of a sampler draws on from the same state; a tokenizer is only made from a file.

static_assert(std::is_copy_constructible_v<Sampler> && !std::is_default_constructible_v<Sampler>);
static_assert(std::is_nothrow_move_constructible_v<Sampler>);
static_assert(std::is_trivially_copyable_v<SamplingParams>);
static_assert(!std::is_default_constructible_v<Tokenizer>);
static_assert(std::is_nothrow_move_constructible_v<Tokenizer>);

// --- The batcher refers to what it runs on, and its leases to the cache.

using TheBatcher = Batcher<kvstem::RadixCache<>>;
static_assert(!std::is_copy_constructible_v<TheBatcher> &&
              !std::is_move_constructible_v<TheBatcher>);
static_assert(std::is_trivially_copyable_v<BatcherOptions>);
static_assert(std::is_trivially_copyable_v<BatcherStats>);
static_assert(noexcept(std::declval<const TheBatcher&>().queued()));
static_assert(noexcept(std::declval<const TheBatcher&>().stats()));

}  // namespace
