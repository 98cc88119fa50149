// SPDX-License-Identifier: MIT
// What leaves a RadixCache, in which order, and when.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "kvstem/radix_cache.hpp"
#include "support/radix_picture.hpp"
#include "support/token_rows.hpp"

using namespace kvstem_test;
using Cache = kvstem::RadixCache<>;

namespace {

Cache make_cache(std::size_t page_tokens, std::size_t pages) {
    return Cache({.page_tokens = page_tokens}, PagePool(pages));
}

/// Evicts page by page; the prefixes in the order in which they left.
template <class C>
std::vector<Tokens> evict_all(C& cache) {
    std::vector<Tokens> gone;
    for (auto before = cached_pages_of(cache); cache.evict(1) == 1;) {
        const auto after = cached_pages_of(cache);
        for (const auto& [key, page] : before) {
            if (after.count(key) == 0) gone.push_back(key.second);
        }
        before = after;
    }
    return gone;
}

/// LeastRecentlyUsed, counting how often a cache asks it for something.
struct CountingLru : kvstem::LeastRecentlyUsed {
    mutable std::size_t calls = 0;

    template <class Nodes>
    void unpinned(Nodes& nodes, kvstem::NodeId node) noexcept {
        ++calls;
        LeastRecentlyUsed::unpinned(nodes, node);
    }
    template <class Nodes>
    void removed(Nodes& nodes, kvstem::NodeId node) noexcept {
        ++calls;
        LeastRecentlyUsed::removed(nodes, node);
    }
    template <class Nodes>
    [[nodiscard]] kvstem::NodeId victim(Nodes& nodes) const noexcept {
        ++calls;
        return LeastRecentlyUsed::victim(nodes);
    }
};

/// Evicts the unpinned leaf with the greatest number, which is none of the orders that are
/// supplied.
struct GreatestIdFirst {
    struct NodeData {};
    std::array<bool, 100> unpinned_nodes{};

    [[nodiscard]] bool& at(kvstem::NodeId node) noexcept {
        return unpinned_nodes[static_cast<std::uint32_t>(node)];
    }
    template <class Nodes>
    void unpinned(Nodes&, kvstem::NodeId node) noexcept {
        at(node) = true;
    }
    template <class Nodes>
    void pinned(Nodes&, kvstem::NodeId node) noexcept {
        at(node) = false;
    }
    template <class Nodes>
    void split(Nodes&, kvstem::NodeId upper, kvstem::NodeId) noexcept {
        at(upper) = true;
    }
    template <class Nodes>
    void removed(Nodes&, kvstem::NodeId node) noexcept {
        at(node) = false;
    }
    template <class Nodes>
    [[nodiscard]] kvstem::NodeId victim(Nodes& nodes) const noexcept {
        for (std::uint32_t i = 99; i > 0; --i) {
            if (unpinned_nodes[i] && nodes.is_leaf(kvstem::NodeId{i})) return kvstem::NodeId{i};
        }
        return kvstem::no_node;
    }
};

}  // namespace

TEST_CASE("eviction takes exactly as many pages as asked for, from the tail of a leaf", "[E1]") {
    Cache cache = make_cache(2, 10);
    publish_prompt(cache, {1, 2, 3, 4, 5, 6, 7, 8});
    CHECK(cache.evict(1) == 1);
    CHECK(cache.peek(Tokens{1, 2, 3, 4, 5, 6, 7, 8}).cached_tokens == 6);
    CHECK(cache.evict(2) == 2);
    CHECK(cache.peek(Tokens{1, 2, 3, 4, 5, 6, 7, 8}).cached_tokens == 2);
    CHECK(cache.free_pages() == 9);
    CHECK(cache.evict(0) == 0);
    CHECK(cache.evict(5) == 1);
    CHECK(cache.evict(5) == 0);
    CHECK(cache.stats().evicted_pages == 4);
    CHECK(first_finding(cache).empty());
}

TEST_CASE("leaves go before what they hang on", "[E1]") {
    Cache cache = make_cache(1, 20);
    publish_prompt(cache, {1, 2});
    publish_prompt(cache, {1, 2, 3});
    publish_prompt(cache, {1, 2, 4});
    CHECK(evict_all(cache) == std::vector<Tokens>{{1, 2, 3}, {1, 2, 4}, {1, 2}, {1}});
}

TEST_CASE("pages that a lease reads are not evicted", "[E1]") {
    Cache cache = make_cache(1, 20);
    auto lease = publish_prompt(cache, {1, 2, 3});
    publish_prompt(cache, {1, 2, 4, 5});
    publish_prompt(cache, {7});
    CHECK(cache.pinned_pages() == 3);
    CHECK(cache.evict(20) == 3);
    CHECK(cache.peek(Tokens{1, 2, 3}).cached_tokens == 3);
    CHECK(cache.cached_pages() == 3);
    lease.release();
    CHECK(cache.evict(20) == 3);
    CHECK(cache.free_pages() == 20);
}

TEST_CASE("the least recently used goes first", "[E2]") {
    Cache cache = make_cache(1, 20);
    publish_prompt(cache, {1, 2});
    publish_prompt(cache, {3, 4});
    publish_prompt(cache, {5, 6});
    CHECK(adopted_by(cache, {1, 2, 0}) == 2);
    CHECK(evict_all(cache) == std::vector<Tokens>{{3, 4}, {3}, {5, 6}, {5}, {1, 2}, {1}});
}

TEST_CASE("a prefix is used for as long as it is leased, not since it was acquired", "[E2]") {
    Cache cache = make_cache(1, 20);
    auto early = publish_prompt(cache, {1});
    publish_prompt(cache, {2});
    early.release();
    CHECK(evict_all(cache) == std::vector<Tokens>{{2}, {1}});
}

TEST_CASE("peeking refreshes nothing", "[E2][M2]") {
    Cache cache = make_cache(1, 20);
    publish_prompt(cache, {1});
    publish_prompt(cache, {2});
    CHECK(cache.peek(Tokens{1, 5}).adoptable_tokens == 1);
    CHECK(evict_all(cache) == std::vector<Tokens>{{1}, {2}});
}

TEST_CASE("namespaces stand in one order of eviction", "[E2][M7]") {
    Cache cache = make_cache(1, 20);
    publish_prompt(cache, {1}, {.adapter = "a"});
    publish_prompt(cache, {2});
    publish_prompt(cache, {3}, {.salt = "a"});
    publish_prompt(cache, {4}, {.adapter = "a"});
    CHECK(evict_all(cache) == std::vector<Tokens>{{1}, {2}, {3}, {4}});
    CHECK(cache.stats().namespaces == 0);
}

TEST_CASE("a page that a fork also holds leaves the tree without becoming free", "[E1][G1]") {
    Cache cache = make_cache(2, 4);
    TokenRows rows(4, 2);
    auto first = std::move(cache.acquire(Tokens{1, 2, 3, 4}).lease);
    rows.compute(first, Tokens{1, 2, 3, 4});
    auto fork = std::move(first.fork(rows).lease);
    first.publish();
    first.release();
    CHECK(cache.evictable_pages() == 2);
    CHECK(cache.evict(1) == 1);
    CHECK(cache.free_pages() == 2);
    CHECK(first_finding(cache).empty());
    SECTION("so that a request for more than can become free is refused, with nothing evicted") {
        const std::string before = picture_of(cache);
        CHECK(cache.acquire(Tokens{7, 7, 7, 7, 7, 7}).admission == Admission::exhausted);
        CHECK(picture_of(cache) == before);
    }
    CHECK(rows.read(fork) == Tokens{1, 2, 3, 4});
    fork.publish();
    CHECK(cache.cached_pages() == 2);
    CHECK(first_finding(cache).empty());
}

TEST_CASE("what is cached but cannot become free is told from what can, also on the matched prefix",
          "[E4]") {
    // Pages 0 and 1 are in the tree and held by a fork; 2 and 3 are the tree's alone.
    Cache cache = make_cache(1, 4);
    TokenRows rows(4, 1);
    auto first = std::move(cache.acquire(Tokens{1, 2}).lease);
    first.wrote(Tokens{1, 2});
    auto fork = std::move(first.fork(rows).lease);
    first.publish();
    first.release();
    publish_prompt(cache, {7, 8});
    REQUIRE(cache.free_pages() == 0);
    auto granted = cache.acquire(Tokens{1, 2, 3, 4});  // adopts [1 2] and needs two more
    CHECK(granted.admission == Admission::granted);
    CHECK(granted.lease.adopted() == 2);
    CHECK(first_finding(cache).empty());
}

TEST_CASE("evicting a page asks the policy as often in a large tree as in a small one",
          "[E3][E6]") {
    const auto calls_for_one_page = [](std::size_t leaves) {
        kvstem::RadixCache<PagePool, CountingLru> cache({.page_tokens = 1}, PagePool(leaves + 1));
        for (std::size_t i = 0; i < leaves; ++i) {
            publish_prompt(cache, {static_cast<kvstem::Token>(i)});
        }
        const std::size_t before = cache.policy().calls;
        CHECK(cache.evict(1) == 1);
        return cache.policy().calls - before;
    };
    CHECK(calls_for_one_page(10) == calls_for_one_page(10'000));
}

TEST_CASE("a policy is a type that can be exchanged", "[E6]") {
    kvstem::RadixCache<PagePool, GreatestIdFirst> cache({.page_tokens = 1}, PagePool(20));
    publish_prompt(cache, {1});
    publish_prompt(cache, {2});
    publish_prompt(cache, {3});
    CHECK(adopted_by(cache, {1, 0}) == 1);
    CHECK(evict_all(cache) == std::vector<Tokens>{{3}, {2}, {1}});
    publish_prompt(cache, {1, 2});
    publish_prompt(cache, {1, 4});
    CHECK(cache.evict(1) == 1);
    CHECK(cache.peek(Tokens{1}).cached_tokens == 1);  // a leaf, whatever the number
    CHECK(cache.evict(20) == 2);
    CHECK(first_finding(cache).empty());
}

TEST_CASE("a request that is short evicts and is served at once", "[E4]") {
    Cache cache = make_cache(1, 4);
    publish_prompt(cache, {1, 2, 3, 4});
    REQUIRE(cache.free_pages() == 0);
    auto acquired = cache.acquire(Tokens{7, 8});
    CHECK(acquired);
    CHECK(cache.peek(Tokens{1, 2, 3, 4}).cached_tokens == 2);
    CHECK(acquired.lease.grow_to(4) == Admission::granted);
    CHECK(cache.cached_pages() == 0);
}

TEST_CASE("a request that is short evicts what is missing and no more", "[E1][G4]") {
    Cache cache({.page_tokens = 1}, PagePool(8));
    publish_prompt(cache, counted(6));
    const auto [admission, lease] = cache.acquire(counted(5, 100));
    CHECK(admission == Admission::granted);
    CHECK(cache.stats().evicted_pages == 3);
    CHECK(cache.cached_pages() == 3);
    CHECK(cache.free_pages() == 0);
}

TEST_CASE("from an engine's own page source a request evicts what is missing and no more", "[G4]") {
    struct OwnPages : PagePool {
        using PagePool::PagePool;
    };
    kvstem::RadixCache<OwnPages> cache({.page_tokens = 2}, OwnPages(10));
    publish_prompt(cache, counted(16));
    REQUIRE(cache.free_pages() == 2);
    const auto acquired = cache.acquire(counted(8, 200));  // 4 pages: 2 are missing
    REQUIRE(acquired);
    CHECK(cache.stats().evicted_pages == 2);
    CHECK(cache.cached_pages() == 6);
    CHECK(cache.audit().ok());
}

TEST_CASE("a request gets the pages that are evicted for it, and the free ones behind them",
          "[E1][G1]") {
    auto cache = make_cache(2, 10);
    publish_prompt(cache, counted(8));       // 4 pages, the oldest
    publish_prompt(cache, counted(8, 100));  // 4 pages
    REQUIRE(cache.free_pages() == 2);
    const auto before = cached_pages_of(cache);
    std::set<kvstem::PageId> old;
    for (const auto& [key, page] : before) old.insert(page.page);

    auto acquired = cache.acquire(counted(16, 200));  // 8 pages: 6 are missing
    REQUIRE(acquired);
    const auto table = acquired.lease.block_table();
    const auto after = cached_pages_of(cache);
    std::set<kvstem::PageId> own(table.begin(), table.end());
    CHECK(own.size() == 8);
    CHECK(std::all_of(table.begin(), table.begin() + 6, [&](auto p) { return old.count(p) == 1; }));
    CHECK(std::all_of(table.begin() + 6, table.end(), [&](auto p) { return old.count(p) == 0; }));
    for (const auto& [key, page] : after) CHECK(own.count(page.page) == 0);
    CHECK(after.size() == 2);
    CHECK(cache.stats().evicted_pages == 6);
    CHECK(cache.free_pages() == 0);
    CHECK(cache.audit().ok());

    acquired.lease.release();
    CHECK(cache.free_pages() == 8);
    CHECK(cache.audit().ok());
}

TEST_CASE("a request never gets a page that a fork still holds", "[E1][G1]") {
    auto cache = make_cache(2, 8);
    auto first = cache.acquire(counted(8));
    first.lease.wrote(counted(8));
    auto fork = first.lease.fork([](auto, auto, auto) {});
    REQUIRE(fork);
    first.lease.publish();
    first.lease.release();
    publish_prompt(cache, counted(4, 100));
    // In the tree, the oldest first: four pages that the fork holds as well, and two that nobody
    // does. Two are free, and one is missing.
    REQUIRE(cache.free_pages() == 2);
    const auto acquired = cache.acquire(counted(6, 200));
    REQUIRE(acquired);
    const auto held = fork.lease.block_table();
    for (const kvstem::PageId page : acquired.lease.block_table()) {
        CHECK(std::find(held.begin(), held.end(), page) == held.end());
        CHECK(cache.pages().refs(page) == 1);
    }
    CHECK(cache.audit().ok());
}

TEST_CASE("a request is refused for now only when leases hold what it needs", "[E4]") {
    Cache cache = make_cache(1, 4);
    auto held = publish_prompt(cache, {1, 2, 3});
    CHECK(cache.acquire(Tokens{7, 8}).admission == Admission::exhausted);
    CHECK(cache.stats().exhausted == 1);
    held.release();
    CHECK(cache.acquire(Tokens{7, 8}));
}

TEST_CASE("a request that could never fit is told so, whatever is free", "[E4]") {
    Cache cache = make_cache(2, 4);
    CHECK(cache.acquire(counted(9)).admission == Admission::never_fits);
    auto lease = std::move(cache.acquire(counted(8)).lease);
    CHECK(lease.grow_to(9) == Admission::never_fits);
    CHECK(lease.grow_to(static_cast<std::size_t>(-1)) == Admission::never_fits);
    CHECK(cache.stats().never_fits == 3);
}

TEST_CASE("a refused request changes neither the tree nor the recency", "[E5]") {
    Cache cache = make_cache(2, 8);
    TokenRows rows(8, 2);
    publish_prompt(cache, {9, 9});
    publish_prompt(cache, {1, 2, 3, 4, 5, 6});
    auto held = publish_prompt(cache, {1, 2, 7, 8, 0});
    REQUIRE(cache.free_pages() == 2);
    const std::string before = picture_of(cache);
    const std::string lease = picture_of_lease(held);
    SECTION("an acquire whose match ends inside a node") {
        CHECK(cache.acquire(Tokens{1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0}).admission ==
              Admission::exhausted);
    }
    SECTION("an acquire of a new namespace") {
        CHECK(cache.acquire(counted(16), {.adapter = "new"}).admission == Admission::exhausted);
    }
    SECTION("one that never fits") {
        CHECK(cache.acquire(counted(17), {.adapter = "new"}).admission == Admission::never_fits);
    }
    SECTION("forking and cutting back") {
        auto all = cache.acquire(counted(10, 50));
        REQUIRE(all.lease.block_table().size() == 5);
        auto rest = cache.acquire(Tokens{});
        const std::string full = picture_of(cache);
        REQUIRE(cache.free_pages() + cache.evictable_pages() == 0);
        CHECK(held.fork(rows).admission == Admission::exhausted);
        CHECK(held.cut_back(3, rows) == Admission::exhausted);
        CHECK(picture_of(cache) == full);
        CHECK(rows.copies == 0);
        CHECK(picture_of_lease(held) == lease);
        return;
    }
    CHECK(picture_of(cache) == before);
    CHECK(picture_of_lease(held) == lease);
}

TEST_CASE("a match is pinned before anything is evicted for the same request", "[M3]") {
    // The match is the oldest: it would be the first to go.
    Cache cache = make_cache(1, 6);
    publish_prompt(cache, {1, 2, 3});
    publish_prompt(cache, {7, 8, 9});
    auto acquired = cache.acquire(Tokens{1, 2, 3, 4, 5});
    REQUIRE(acquired);
    CHECK(acquired.lease.adopted() == 3);
    CHECK(cache.peek(Tokens{7, 8, 9}).cached_tokens == 1);
    CHECK(first_finding(cache).empty());
}

TEST_CASE("a page that holds nothing is taken before a cached one", "[G4]") {
    Cache cache = make_cache(1, 8);
    publish_prompt(cache, {1, 2, 3, 4});
    auto acquired = cache.acquire(Tokens{7, 7, 7, 7});
    REQUIRE(acquired);
    CHECK(cache.stats().evicted_pages == 0);
    CHECK(cache.cached_pages() == 4);
}
