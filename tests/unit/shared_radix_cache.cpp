// SPDX-License-Identifier: MIT
// The shared form, by one thread: what it adds to RadixCache but for the waiting of several.

#include "kvstem/shared_radix_cache.hpp"

#include <chrono>
#include <cstddef>
#include <functional>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "kvstem/picture.hpp"
#include "kvstem/policy/priority.hpp"
#include "support/fail_allocation.hpp"

using kvstem::Acquired;
using kvstem::Admission;
using kvstem::Deadline;
using kvstem::PageId;
using kvstem::PagePool;
using kvstem::SharedRadixCache;
using kvstem_test::FailingAllocation;

namespace {

using Cache = SharedRadixCache<>;
using Lease = Cache::Lease;
using Tokens = std::vector<kvstem::Token>;

constexpr auto no_rows = [](PageId, PageId, std::size_t) {};

/// `count` tokens that no other `first` gives.
Tokens tokens(kvstem::Token first, std::size_t count) {
    Tokens result(count);
    for (std::size_t i = 0; i < count; ++i) {
        result[i] = first * 1000 + static_cast<kvstem::Token>(i);
    }
    return result;
}

void compute(Lease& lease, const Tokens& prompt) {
    lease.wrote(std::span(prompt).subspan(lease.written()));
}

Lease granted(Acquired<Lease> acquired) {
    REQUIRE(acquired.admission == Admission::granted);
    return std::move(acquired.lease);
}

void check_conserved(const Cache& cache) {
    CHECK(cache.audit().ok());
    const auto stats = cache.stats();
    CHECK(stats.hit_tokens + stats.missed_tokens == stats.queried_tokens);
    CHECK(stats.leases == 0);
    CHECK(stats.free_pages + stats.cached_pages == stats.capacity_pages);
}

/// A deadline that lies behind us.
Deadline past() {
    return std::chrono::steady_clock::now() - std::chrono::hours(1);
}

}  // namespace

TEST_CASE("a shared lease is move-only and never throws as it moves or dies", "[L1]") {
    STATIC_REQUIRE(std::is_nothrow_move_constructible_v<Lease>);
    STATIC_REQUIRE(std::is_nothrow_move_assignable_v<Lease>);
    STATIC_REQUIRE(std::is_nothrow_destructible_v<Lease>);
    STATIC_REQUIRE(!std::is_copy_constructible_v<Lease>);
    STATIC_REQUIRE(!std::is_copy_constructible_v<Cache>);
    STATIC_REQUIRE(!std::is_move_constructible_v<Cache>);

    Cache cache({.page_tokens = 2}, PagePool(4));
    Lease lease = granted(cache.acquire(tokens(1, 4)));
    Lease other(std::move(lease));
    CHECK(lease.empty());
    CHECK(other.capacity() == 4);
    other = granted(cache.acquire(tokens(2, 2)));  // the first one is given back
    CHECK(cache.free_pages() == 3);
    lease = std::move(other);
    CHECK(other.empty());
    CHECK_THROWS_AS(other.written(), kvstem::StaleHandle);
    CHECK_THROWS_AS(other.publish(), kvstem::StaleHandle);
    lease.release();
    lease.release();
    CHECK(lease.empty());
    check_conserved(cache);
}

TEST_CASE("a shared lease does all that a lease does", "[P1][L2][L3][L4]") {
    Cache cache({.page_tokens = 2}, PagePool(8));
    const Tokens prompt = tokens(1, 7);
    Lease lease = granted(cache.acquire(prompt));
    CHECK(lease.adopted() == 0);
    CHECK(lease.capacity() == 8);
    CHECK(lease.block_table().size() == 4);
    compute(lease, prompt);
    CHECK(lease.written() == 7);
    CHECK(lease.publish() == 3);
    CHECK(lease.published() == 6);
    CHECK(cache.peek(prompt).adoptable_tokens == 6);
    CHECK(lease.grow_to(9) == Admission::granted);
    CHECK(lease.grow_until(17, Deadline::max()) == Admission::never_fits);

    std::size_t copied_rows = 0;
    auto [admission, fork] =
        lease.fork([&](PageId, PageId, std::size_t rows) { copied_rows += rows; });
    REQUIRE(admission == Admission::granted);
    CHECK(copied_rows == 1);
    CHECK(fork.written() == 7);
    CHECK(fork.adopted() == 7);
    CHECK(fork.cut_back(6, no_rows) == Admission::granted);
    CHECK(fork.written() == 6);
    CHECK(cache.stats().leases == 2);
    fork.release();
    lease.release();
    check_conserved(cache);
    CHECK(cache.evict(1) == 1);
    CHECK(cache.free_pages() == 6);
    cache.clear();
    CHECK(cache.free_pages() == 8);
    CHECK(cache.drop({.adapter = "unknown"}) == 0);
}

TEST_CASE("a duplicate is freed when a shared lease switches to the tree", "[P2][C02]") {
    Cache cache({.page_tokens = 2}, PagePool(8));
    const Tokens prompt = tokens(1, 4);
    Lease first = granted(cache.acquire(prompt));
    Lease second = granted(cache.acquire(prompt));
    compute(first, prompt);
    compute(second, prompt);
    CHECK(first.publish() == 2);
    CHECK(second.publish() == 0);
    CHECK(cache.free_pages() == 4);
    CHECK(second.switch_to_tree() == 2);
    CHECK(cache.free_pages() == 6);
    CHECK(second.block_table()[0] == first.block_table()[0]);
}

TEST_CASE("a request whose deadline has passed is served like one that does not wait", "[E4]") {
    Cache cache({.page_tokens = 1}, PagePool(4));
    Lease lease = granted(cache.acquire_until(tokens(1, 3), past()));
    CHECK(cache.acquire_until(tokens(2, 2), past()).admission == Admission::exhausted);
    CHECK(cache.acquire_for(tokens(2, 2), std::chrono::seconds(-1)).admission ==
          Admission::exhausted);
    CHECK(cache.acquire_for(tokens(2, 2), Deadline::duration::min()).admission ==
          Admission::exhausted);
    CHECK(lease.grow_until(5, past()) == Admission::never_fits);
    CHECK(lease.grow_until(4, past()) == Admission::granted);
    CHECK(cache.waiting_requests() == 0);
}

TEST_CASE("a request that can evict does so at once instead of waiting", "[E4]") {
    Cache cache({.page_tokens = 1}, PagePool(4));
    Lease lease = granted(cache.acquire(tokens(1, 4)));
    compute(lease, tokens(1, 4));
    lease.publish();
    lease.release();
    REQUIRE(cache.free_pages() == 0);
    Lease next = granted(cache.acquire_until(tokens(2, 3), Deadline::max()));
    CHECK(cache.stats().evicted_pages == 3);
    CHECK(next.grow_until(4, Deadline::max()) == Admission::granted);
    CHECK(cache.stats().evicted_pages == 4);
}

TEST_CASE("what can never fit is refused at once, whatever the deadline", "[E4]") {
    Cache cache({.page_tokens = 2}, PagePool(4));
    Lease all = granted(cache.acquire(tokens(1, 8)));
    CHECK(cache.acquire_until(tokens(2, 9), Deadline::max()).admission == Admission::never_fits);
    CHECK(cache.acquire_for(tokens(2, 9), Deadline::duration::max()).admission ==
          Admission::never_fits);
    CHECK(all.grow_until(9, Deadline::max()) == Admission::never_fits);
    CHECK(cache.stats().never_fits == 3);
    CHECK(cache.stats().exhausted == 0);
    CHECK(cache.stats().queried_tokens == 8);
}

TEST_CASE("a wait that ends refused counts as one refusal and as no query", "[C1]") {
    Cache cache({.page_tokens = 1}, PagePool(2));
    Lease all = granted(cache.acquire(tokens(1, 2)));
    const auto soon = std::chrono::milliseconds(1);
    CHECK(cache.acquire_for(tokens(2, 1), soon).admission == Admission::exhausted);
    CHECK(cache.stats().exhausted == 1);
    CHECK(cache.acquire(tokens(2, 1)).admission == Admission::exhausted);
    CHECK(cache.stats().exhausted == 2);
    CHECK(cache.stats().queried_tokens == 2);
    CHECK(cache.stats().misses == 1);
}

TEST_CASE("looking at a prompt three times and then admitting it counts one query", "[C33][C1]") {
    Cache cache({.page_tokens = 2}, PagePool(8));
    const Tokens prompt = tokens(1, 6);
    Lease lease = granted(cache.acquire(prompt));
    compute(lease, prompt);
    lease.publish();
    const auto before = cache.stats();
    for (int i = 0; i < 3; ++i) CHECK(cache.peek(prompt).adoptable_tokens == 4);
    CHECK(cache.stats().queried_tokens == before.queried_tokens);
    CHECK(cache.stats().hits == before.hits);
    Lease next = granted(cache.acquire_until(prompt, Deadline::max()));
    CHECK(cache.stats().queried_tokens == before.queried_tokens + 6);
    CHECK(cache.stats().hit_tokens == before.hit_tokens + 4);
    CHECK(cache.stats().hits == before.hits + 1);
}

TEST_CASE("an aborted request leaves nothing, neither before nor after it is gone", "[C06][P6]") {
    Cache cache({.page_tokens = 2}, PagePool(8));
    const Tokens prompt = tokens(1, 6);
    std::optional<Lease> aborted = granted(cache.acquire(prompt));
    CHECK(cache.peek(prompt).cached_tokens == 0);
    CHECK(granted(cache.acquire(prompt)).adopted() == 0);
    compute(*aborted, prompt);
    aborted.reset();
    CHECK(cache.peek(prompt).cached_tokens == 0);
    CHECK(granted(cache.acquire(prompt)).adopted() == 0);
    CHECK(cache.free_pages() == 8);
    check_conserved(cache);
}

TEST_CASE("shared leases that outlive their cache become empty") {
    std::optional<Cache> cache;
    cache.emplace(kvstem::RadixCacheOptions{.page_tokens = 2}, PagePool(8));
    Lease lease = granted(cache->acquire(tokens(1, 4)));
    Lease moved = granted(cache->acquire(tokens(2, 4)));
    Lease target = std::move(moved);
    cache.reset();
    CHECK(lease.empty());
    CHECK(target.empty());
    CHECK_THROWS_AS(lease.publish(), kvstem::StaleHandle);
    lease = std::move(target);
    lease.release();
    CHECK(lease.empty());
}

TEST_CASE("a copy hook that throws leaves a waiting acquire without a trace", "[R1][M8]") {
    Cache cache({.page_tokens = 4}, PagePool(8));
    const Tokens prompt = tokens(1, 8);
    Lease first = granted(cache.acquire(prompt));
    compute(first, prompt);
    first.publish();
    first.release();
    struct CopyRefused {};
    const auto refuse = [](PageId, PageId, std::size_t) { throw CopyRefused(); };
    Tokens branch = tokens(1, 8);
    branch[7] = -1;
    CHECK_THROWS_AS(cache.acquire_until(branch, Deadline::max(), {}, refuse), CopyRefused);
    CHECK_THROWS_AS(cache.acquire_for(branch, Deadline::duration::max(), {}, refuse), CopyRefused);
    CHECK(cache.waiting_requests() == 0);
    check_conserved(cache);
    std::size_t rows = 0;
    const auto count = [&](PageId, PageId, std::size_t n) { rows += n; };
    CHECK(granted(cache.acquire_until(branch, Deadline::max(), {}, count)).adopted() == 7);
    CHECK(rows == 3);
}

TEST_CASE("no allocation that fails leaves a trace", "[R1]") {
    Cache cache({.page_tokens = 2}, PagePool(16));
    const Tokens prompt = tokens(1, 9);
    std::size_t faults = 0;
    for (std::size_t n = 1;; ++n) {
        const auto before = cache.stats();
        bool fired = false;
        try {
            FailingAllocation failing(n);
            auto acquired = cache.acquire_until(prompt, Deadline::max(), {.salt = "s"});
            fired = failing.fired();
        } catch (const std::bad_alloc&) {
            fired = true;
            ++faults;
            CHECK(cache.stats().queried_tokens == before.queried_tokens);
        }
        CHECK(cache.waiting_requests() == 0);
        CHECK(cache.free_pages() == 16);
        CHECK(cache.audit().ok());
        if (!fired) break;
    }
    CHECK(faults > 0);
}

TEST_CASE("the cache inside can be looked at under the lock") {
    Cache cache({.page_tokens = 2}, PagePool(4));
    Lease lease = granted(cache.acquire(tokens(1, 2)));
    compute(lease, tokens(1, 2));
    lease.publish();
    CHECK(cache.inspect([](const auto& inside) { return kvstem::to_text(inside); }) ==
          "1 pages in 1 nodes, 1 pages pinned, 3 pages free, page size 2\n"
          "default namespace\n"
          "  [0, 2) tokens 1000 1001, page 0, pinned\n");
    CHECK(cache.inspect([](const auto& inside) { return inside.refs(PageId{0}); }) == 2);
}

TEST_CASE("what a request tells the policy reaches it through every way of acquiring", "[E6]") {
    using Prioritised = SharedRadixCache<PagePool, kvstem::PriorityThenRecency<>>;
    const kvstem::Retention high[] = {{.priority = 90}};
    const kvstem::RequestHints keep{.retention = high};
    using Acquire = std::function<Acquired<Prioritised::Lease>(Prioritised&, const Tokens&)>;
    const Deadline never = Deadline::max();
    const auto for_ever = Deadline::duration::max();
    const Acquire ways[] = {
        [&](auto& cache, const auto& t) { return cache.acquire(t, {}, keep); },
        [&](auto& cache, const auto& t) { return cache.acquire(t, {}, no_rows, keep); },
        [&](auto& cache, const auto& t) { return cache.acquire_until(t, never, {}, keep); },
        [&](auto& cache, const auto& t) {
            return cache.acquire_until(t, never, {}, no_rows, keep);
        },
        [&](auto& cache, const auto& t) { return cache.acquire_for(t, for_ever, {}, keep); },
        [&](auto& cache, const auto& t) {
            return cache.acquire_for(t, for_ever, {}, no_rows, keep);
        },
        [&](auto& cache, const auto& t) {
            const kvstem::SlidingWindow window{.window_tokens = 4};
            return cache.acquire_sliding(t, window, {}, keep);
        },
    };
    for (std::size_t i = 0; i < std::size(ways); ++i) {
        INFO("way " << i);
        Prioritised cache({.page_tokens = 2}, PagePool(16));
        const auto publish = [](Acquired<Prioritised::Lease> acquired, const Tokens& prompt) {
            REQUIRE(acquired.admission == Admission::granted);
            acquired.lease.wrote(prompt);
            acquired.lease.publish();
        };
        publish(ways[i](cache, tokens(1, 4)), tokens(1, 4));
        publish(cache.acquire(tokens(2, 4)), tokens(2, 4));
        CHECK(cache.evict(2) == 2);
        CHECK(cache.peek(tokens(1, 4)).cached_tokens == 4);  // although it is the older one
        CHECK(cache.peek(tokens(2, 4)).cached_tokens == 0);
    }
}
