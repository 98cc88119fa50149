// SPDX-License-Identifier: MIT
// RadixCache: matching, adopting, publishing, namespaces, clearing and counting.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "kvstem/radix_cache.hpp"
#include "support/radix_picture.hpp"
#include "support/token_rows.hpp"
#include "support/tracing_pages.hpp"

using kvstem::InvalidArgument;
using namespace kvstem_test;
using Cache = kvstem::RadixCache<>;
using Lease = Cache::Lease;

namespace {

Cache make_cache(std::size_t page_tokens, std::size_t pages) {
    return Cache({.page_tokens = page_tokens}, PagePool(pages));
}

Lease take(Cache& cache, const Tokens& prompt, const Namespace& name = {}) {
    auto acquired = cache.acquire(prompt, name);
    REQUIRE(acquired);
    return std::move(acquired.lease);
}

}  // namespace

// --- Matching ------------------------------------------------------------------------------------

TEST_CASE("a match is the longest run of whole equal pages", "[M1]") {
    Cache cache = make_cache(2, 20);
    publish_prompt(cache, {1, 2, 3, 4, 5, 6});
    CHECK(cache.peek(Tokens{1, 2, 3, 4, 5, 6, 7}).cached_tokens == 6);
    CHECK(cache.peek(Tokens{1, 2, 3, 4, 5, 9}).cached_tokens == 4);
    CHECK(cache.peek(Tokens{1, 2, 3, 4, 5}).cached_tokens == 4);
    CHECK(cache.peek(Tokens{1, 9, 3, 4}).cached_tokens == 0);
    CHECK(cache.peek(Tokens{3, 4, 5, 6}).cached_tokens == 0);
}

TEST_CASE("peeking changes nothing", "[M2]") {
    Cache cache = make_cache(2, 20);
    publish_prompt(cache, {1, 2, 3, 4, 5, 6});
    publish_prompt(cache, {1, 2, 9, 9}, {.salt = "s"});
    const std::string before = picture_of(cache);
    const Cache& view = cache;
    CHECK(view.peek(Tokens{1, 2, 3, 4, 9}).cached_tokens == 4);
    CHECK(view.peek(Tokens{1, 2, 9, 9}, {.salt = "s"}).cached_tokens == 4);
    CHECK(view.peek(Tokens{1, 2, 9, 9}, {.salt = "t"}).cached_tokens == 0);
    CHECK(picture_of(cache) == before);
}

TEST_CASE("a request keeps at least one token to run", "[M4]") {
    Cache cache = make_cache(2, 20);
    publish_prompt(cache, {1, 2, 3, 4});
    const auto match = cache.peek(Tokens{1, 2, 3, 4});
    CHECK(match.cached_tokens == 4);
    CHECK(match.adoptable_tokens == 2);
    CHECK(adopted_by(cache, {1, 2, 3, 4}) == 2);
    CHECK(adopted_by(cache, {1, 2, 3, 4, 5}) == 4);
    CHECK(adopted_by(cache, {1, 2, 3}) == 2);
    CHECK(adopted_by(cache, {1, 2}) == 0);
}

TEST_CASE("only the matched part of a node is pinned", "[M5]") {
    Cache cache = make_cache(1, 20);
    publish_prompt(cache, {1, 2, 3, 4, 5});
    publish_prompt(cache, {1, 2, 3, 6});
    const Lease lease = take(cache, {1, 2, 0});
    CHECK(lease.adopted() == 2);
    CHECK(cache.pinned_pages() == 2);
    CHECK(cache.evictable_pages() == 4);
    CHECK(first_finding(cache).empty());
}

TEST_CASE("only the matched part of a node is refreshed", "[M5]") {
    Cache cache = make_cache(1, 20);
    publish_prompt(cache, {1, 2, 3, 4});
    publish_prompt(cache, {7, 8});
    CHECK(adopted_by(cache, {1, 2, 0}) == 2);
    CHECK(cache.evict(2) == 2);
    CHECK(cache.peek(Tokens{1, 2, 3, 4}).cached_tokens == 2);
    CHECK(cache.peek(Tokens{7, 8}).cached_tokens == 2);
}

TEST_CASE("an empty prompt is served and creates nothing", "[M6]") {
    Cache cache = make_cache(4, 2);
    CHECK(cache.peek(Tokens{}).cached_tokens == 0);
    Lease lease = take(cache, {});
    CHECK(lease.block_table().empty());
    CHECK(lease.publish() == 0);
    CHECK(lease.grow_to(3) == Admission::granted);
    CHECK(lease.block_table().size() == 1);
    lease.release();
    CHECK(cache.stats().nodes == 0);
    CHECK(cache.free_pages() == 2);
}

TEST_CASE("a prompt shorter than a page matches nothing and leaves nothing", "[M6]") {
    Cache cache = make_cache(4, 4);
    publish_prompt(cache, {1, 2, 3, 4});
    const std::string before = picture_of(cache);
    CHECK(cache.peek(Tokens{1, 2, 3}).cached_tokens == 0);
    CHECK(publish_prompt(cache, {1, 2, 3}).adopted() == 0);
    CHECK(publish_prompt(cache, {9}, {.adapter = "new"}).adopted() == 0);
    CHECK(cache.stats().namespaces == 0);
    CHECK(cache.cached_pages() == 1);
    CHECK(recency_of(cache).size() == 1);
    CHECK(before.substr(before.find("owners")).substr(0, 30) ==
          picture_of(cache).substr(picture_of(cache).find("owners")).substr(0, 30));
}

TEST_CASE("namespaces never share, and share one pool", "[M7]") {
    const std::vector<Namespace> names{{},
                                       {.adapter = "X"},
                                       {.version = "X"},
                                       {.salt = "X"},
                                       {.adapter = ""},
                                       {.adapter = "a", .version = "bc"},
                                       {.adapter = "ab", .version = "c"}};
    Cache cache = make_cache(1, 20);
    for (std::size_t i = 0; i < names.size(); ++i) {
        for (const Namespace& name : names) {
            CAPTURE(i, text_of(name));
            const bool published = &name < &names[i];
            CHECK(cache.peek(Tokens{1, 2}, name).cached_tokens == (published ? 2 : 0));
        }
        publish_prompt(cache, {1, 2}, names[i]);
    }
    CHECK(cache.stats().namespaces == names.size() - 1);
    CHECK(cache.free_pages() == 20 - 2 * names.size());
    CHECK(cache.drop(names[5]) == 2);
    CHECK(cache.drop(names[5]) == 0);
    CHECK(cache.peek(Tokens{1, 2}, names[6]).cached_tokens == 2);
    CHECK(cache.drop({}) == 2);
    CHECK(cache.peek(Tokens{1, 2}).cached_tokens == 0);
    CHECK(cache.stats().dropped_pages == 4);
    CHECK(first_finding(cache).empty());
}

TEST_CASE("with a copy hook the first rows of the next page are adopted too", "[M8]") {
    Cache cache = make_cache(4, 20);
    TokenRows rows(20, 4);
    Lease first = take(cache, {1, 2, 3, 4, 5, 6, 7, 8});
    rows.compute(first, Tokens{1, 2, 3, 4, 5, 6, 7, 8});
    first.publish();
    SECTION("inside a node") {
        auto second = cache.acquire(Tokens{1, 2, 3, 4, 5, 6, 9, 9, 9}, {}, rows);
        REQUIRE(second);
        CHECK(second.lease.adopted() == 6);
        CHECK(second.lease.published() == 4);
        CHECK(rows.read(second.lease) == Tokens{1, 2, 3, 4, 5, 6});
        CHECK(second.lease.block_table()[1] != first.block_table()[1]);
        rows.compute(second.lease, Tokens{9, 9, 9});
        CHECK(second.lease.publish() == 1);
        CHECK(cache.peek(Tokens{1, 2, 3, 4, 5, 6, 9, 9}).cached_tokens == 8);
        CHECK(rows.read(first) == Tokens{1, 2, 3, 4, 5, 6, 7, 8});
        CHECK(cache.stats().partial_tokens == 2);
    }
    SECTION("at the root, where the best of several pages is taken") {
        Lease other = take(cache, {1, 2, 9, 9});
        rows.compute(other, Tokens{1, 2, 9, 9});
        other.publish();
        auto second = cache.acquire(Tokens{1, 2, 3, 0, 0}, {}, rows);
        REQUIRE(second);
        CHECK(second.lease.adopted() == 3);
        CHECK(rows.read(second.lease) == Tokens{1, 2, 3});
    }
    SECTION("but never the last token") {
        auto second = cache.acquire(Tokens{1, 2, 3, 4}, {}, rows);
        REQUIRE(second);
        CHECK(second.lease.adopted() == 3);
    }
    SECTION("and without the hook it is not") {
        CHECK(take(cache, {1, 2, 3, 4, 5, 6, 9}).adopted() == 4);
        CHECK(rows.copies == 0);
    }
    SECTION("and where nothing agrees the hook is not called") {
        auto second = cache.acquire(Tokens{9, 2, 3, 4}, {}, rows);
        CHECK(second.lease.adopted() == 0);
        auto third = cache.acquire(Tokens{1, 2, 3, 4}, {.salt = "other"}, rows);
        CHECK(third.lease.adopted() == 0);
        CHECK(rows.copies == 0);
    }
    CHECK(first_finding(cache).empty());
}

// --- Publishing ----------------------------------------------------------------------------------

TEST_CASE("only whole pages whose rows are written are published", "[P1]") {
    Cache cache = make_cache(4, 20);
    Lease lease = take(cache, counted(12));
    CHECK(lease.publish() == 0);
    lease.wrote(counted(7));
    CHECK(lease.publish() == 1);
    CHECK(lease.published() == 4);
    CHECK(cache.peek(counted(12)).cached_tokens == 4);
    lease.wrote(counted(1, 7));
    CHECK(lease.publish() == 1);
    CHECK(lease.publish() == 0);
    CHECK(cache.cached_pages() == 2);
    lease.release();
    CHECK(cache.free_pages() == 18);
}

TEST_CASE("where the tree has a prefix it keeps its own pages, and the lease its block table",
          "[P2]") {
    Cache cache = make_cache(2, 20);
    Lease first = take(cache, {1, 2, 3, 4});
    Lease second = take(cache, {1, 2, 3, 4, 5, 6});
    first.wrote(Tokens{1, 2, 3, 4});
    second.wrote(Tokens{1, 2, 3, 4, 5, 6});
    const Ids tree = ids(first.block_table());
    const Ids own = ids(second.block_table());
    CHECK(first.publish() == 2);
    CHECK(second.publish() == 1);
    CHECK(cache.stats().duplicate_pages == 2);
    CHECK(ids(second.block_table()) == own);
    CHECK(cache.refs(own[0]) == 1);
    CHECK(cache.refs(own[2]) == 2);
    SECTION("until it switches") {
        CHECK(second.switch_to_tree() == 2);
        CHECK(ids(second.block_table()) == Ids{tree[0], tree[1], own[2]});
        CHECK(cache.refs(own[0]) == 0);
        CHECK(cache.refs(tree[0]) == 3);
        CHECK(second.switch_to_tree() == 0);
    }
    SECTION("or ends") {
        second.release();
        CHECK(cache.refs(own[0]) == 0);
        CHECK(cache.refs(own[1]) == 0);
        CHECK(cache.refs(own[2]) == 1);
    }
    CHECK(first_finding(cache).empty());
}

TEST_CASE("publishing a prefix of what the tree has splits its node", "[P2]") {
    Cache cache = make_cache(1, 20);
    Lease late = take(cache, {1, 2});
    late.wrote(Tokens{1, 2});
    publish_prompt(cache, {1, 2, 3, 4});
    CHECK(late.publish() == 0);
    CHECK(cache.pinned_pages() == 2);
    CHECK(cache.evict(20) == 2);
    CHECK(late.switch_to_tree() == 2);
    CHECK(first_finding(cache).empty());
}

TEST_CASE("what a running request publishes its pin covers", "[P5]") {
    Cache cache = make_cache(2, 20);
    Lease lease = take(cache, counted(6));
    for (kvstem::Token chunk = 0; chunk < 3; ++chunk) {
        lease.wrote(counted(2, 2 * chunk));
        CHECK(lease.publish() == 1);
        CHECK(cache.pinned_pages() == static_cast<std::size_t>(chunk) + 1);
        CHECK(cache.evict(20) == 0);
        CHECK(first_finding(cache).empty());
    }
    CHECK(take(cache, counted(7)).adopted() == 6);
}

TEST_CASE("an aborted request leaves only what it had published", "[P6]") {
    Cache cache = make_cache(2, 20);
    Lease lease = take(cache, counted(8));
    lease.wrote(counted(4));
    lease.publish();
    lease.wrote(counted(3, 4));
    lease.release();
    CHECK(cache.cached_pages() == 2);
    CHECK(cache.free_pages() == 18);
    CHECK(cache.pinned_pages() == 0);
    CHECK(take(cache, counted(8)).adopted() == 4);
}

// --- Pages ---------------------------------------------------------------------------------------

TEST_CASE("an adopted page has two owners while its request runs and one afterwards", "[G1]") {
    Cache cache = make_cache(2, 20);
    const Ids published = ids(publish_prompt(cache, {1, 2, 3, 4}).block_table());
    Lease lease = take(cache, {1, 2, 3, 4, 5});
    CHECK(ids(lease.block_table().first(2)) == published);
    for (const PageId page : published) CHECK(cache.refs(page) == 2);
    CHECK(cache.refs(lease.block_table()[2]) == 1);
    lease.release();
    for (const PageId page : published) CHECK(cache.refs(page) == 1);
    CHECK_THROWS_AS(cache.refs(PageId{20}), InvalidArgument);
}

TEST_CASE("a hundred requests that each leave two of their three pages are all served",
          "[G3][E4]") {
    Cache cache = make_cache(4, 8);
    for (kvstem::Token i = 0; i < 100; ++i) {
        const Lease lease = publish_prompt(cache, counted(11, 100 * i));
        CHECK(cache.free_pages() + cache.evictable_pages() != 0);
        CHECK(cache.free_pages() + cache.cached_pages() + 1 == 8);
    }
    CHECK(cache.free_pages() + cache.cached_pages() == 8);
    CHECK(first_finding(cache).empty());
}

TEST_CASE("an engine's own allocator takes the place of the pool and gets everything back",
          "[G1][G3]") {
    PageLedger ledger(12);
    {
        kvstem::RadixCache<TracingPages> cache({.page_tokens = 2}, TracingPages(ledger));
        TokenRows rows(12, 2);
        auto first = std::move(cache.acquire(Tokens{1, 2, 3, 4, 5}).lease);
        CHECK(ids(first.block_table()) == ids({11, 10, 9}));
        CHECK(ledger.records.size() == 1);
        CHECK(ledger.records[0].call == PageLedger::Call::acquired);
        rows.compute(first, Tokens{1, 2, 3, 4, 5});
        auto fork = std::move(first.fork(rows).lease);
        CHECK(ledger.holds[11] == 2);
        first.publish();
        fork.publish();
        CHECK(ledger.holds[11] == 1);
        CHECK(cache.refs(PageId{11}) == 3);
        CHECK(fork.cut_back(1, rows) == Admission::granted);
        CHECK(rows.read(fork) == Tokens{1});
        CHECK(first_finding(cache).empty());
        auto second = std::move(cache.acquire(Tokens{1, 2, 9}).lease);
        CHECK(second.adopted() == 2);
        cache.clear();
        CHECK(cache.evict(1) == 0);
        first.release();
        CHECK(first_finding(cache).empty());
        CHECK(ledger.free() == 12 - 3);
        auto survivor = std::make_unique<decltype(second)>(std::move(second));
        // The cache dies before `fork` and the survivor would: both are emptied.
        survivor.reset();
    }
    CHECK(ledger.free() == 12);
    CHECK(ledger.wrong_calls == 0);
}

TEST_CASE("a page source that hands out ids it has not is refused", "[G1][R3]") {
    PageLedger ledger(4);
    kvstem::RadixCache<TracingPages> cache({.page_tokens = 2}, TracingPages(ledger));
    auto lease = std::move(cache.acquire(Tokens{1, 2, 3}).lease);
    lease.wrote(Tokens{1, 2, 3});
    lease.publish();
    const std::string before = picture_of(cache);
    const std::string lease_before = picture_of_lease(lease);
    // Outside its capacity, no page at all, a page of the tree.
    const PageId wrong = GENERATE(PageId{4}, kvstem::no_page, PageId{3});
    ledger.tamper = [&](std::span<PageId> out) { out[0] = wrong; };
    CHECK_THROWS_AS(cache.acquire(Tokens{7}), InvalidArgument);
    ledger.holds[1] = 0;
    CHECK_THROWS_AS(lease.grow_to(5), InvalidArgument);
    ledger.holds[1] = 0;
    CHECK(picture_of(cache) == before);
    CHECK(picture_of_lease(lease) == lease_before);
    CHECK(first_finding(cache).empty());
}

TEST_CASE("a page source that refuses although it said it had pages makes a request wait",
          "[E5][G2]") {
    PageLedger ledger(8);
    kvstem::RadixCache<TracingPages> cache({.page_tokens = 1}, TracingPages(ledger));
    TokenRows rows(8, 1);
    auto lease = std::move(cache.acquire(Tokens{1, 2, 3}).lease);
    lease.wrote(Tokens{1, 2});
    lease.publish();
    const std::string before = pages_picture_of(cache);
    const std::string lease_before = picture_of_lease(lease);
    ledger.refuse_acquire_in = 1;
    CHECK(cache.acquire(Tokens{1, 5}, {.adapter = "new"}).admission == Admission::exhausted);
    ledger.refuse_acquire_in = 1;
    CHECK(cache.acquire(Tokens{1, 5}).admission == Admission::exhausted);
    ledger.refuse_acquire_in = 1;
    CHECK(lease.grow_to(5) == Admission::exhausted);
    CHECK(pages_picture_of(cache) == before);
    CHECK(picture_of_lease(lease) == lease_before);
    CHECK(first_finding(cache).empty());
    CHECK(cache.acquire(Tokens{1, 5}));
}

// --- Clearing ------------------------------------------------------------------------------------

TEST_CASE("clearing under a lease leaves its pages to it, and the next match is 0", "[L5]") {
    Cache cache = make_cache(2, 20);
    TokenRows rows(20, 2);
    publish_prompt(cache, {9, 9});
    Lease lease = take(cache, {1, 2, 3, 4, 5});
    rows.compute(lease, Tokens{1, 2, 3, 4, 5});
    lease.publish();
    const auto counted_before = cache.stats().queried_tokens;
    cache.clear();
    CHECK(cache.cached_pages() == 0);
    CHECK(cache.pinned_pages() == 0);
    CHECK(cache.stats().queried_tokens == counted_before);
    CHECK(cache.stats().dropped_pages == 3);
    CHECK(cache.free_pages() == 17);
    CHECK(cache.peek(Tokens{1, 2, 3}).cached_tokens == 0);
    CHECK(rows.read(lease) == Tokens{1, 2, 3, 4, 5});
    CHECK(first_finding(cache).empty());

    // The lease lives on; so does a new entry with the same tokens beside it.
    const Lease other = publish_prompt(cache, {1, 2, 3, 4});
    CHECK(other.adopted() == 0);
    rows.compute(lease, Tokens{6});
    CHECK(lease.publish() == 0);
    SECTION("released late") {
        lease.release();
        CHECK(lease.empty());
    }
    SECTION("forked, and both released") {
        Lease fork = std::move(lease.fork(rows).lease);
        CHECK(rows.read(fork) == Tokens{1, 2, 3, 4, 5, 6});
        CHECK(first_finding(cache).empty());
        lease.release();
        CHECK(rows.read(fork) == Tokens{1, 2, 3, 4, 5, 6});
        CHECK(fork.publish() == 0);
        CHECK(first_finding(cache).empty());
    }
    SECTION("cut back inside what had been published") {
        CHECK(lease.cut_back(3, rows) == Admission::granted);
        CHECK(rows.copies == 1);
        CHECK(rows.read(lease) == Tokens{1, 2, 3});
        CHECK(first_finding(cache).empty());
        CHECK(cache.free_pages() == 16);
        rows.compute(lease, Tokens{7});
        CHECK(lease.publish() == 0);
        CHECK(lease.cut_back(0, rows) == Admission::granted);
        CHECK(first_finding(cache).empty());
        lease.release();
    }
    CHECK(cache.peek(Tokens{1, 2, 3, 4}).cached_tokens == 4);
    CHECK(cache.free_pages() == 18);
    CHECK(first_finding(cache).empty());
}

TEST_CASE("a tree cleared under two leases goes with the last of them", "[L5]") {
    Cache cache = make_cache(1, 20);
    Lease longer = publish_prompt(cache, {1, 2, 3, 4});
    Lease shorter = take(cache, {1, 2, 9});
    cache.clear();
    cache.clear();
    CHECK(cache.stats().nodes == 3);
    longer.release();
    CHECK(cache.free_pages() == 20 - 3);
    shorter.release();
    CHECK(cache.free_pages() == 20);
    CHECK(cache.stats().nodes == 0);
    CHECK(first_finding(cache).empty());
}

TEST_CASE("a late lease of a dropped namespace cannot publish into its successor", "[L5][M7]") {
    Cache cache = make_cache(1, 20);
    Lease old = publish_prompt(cache, {1}, {.adapter = "a"});
    CHECK(cache.drop({.adapter = "a"}) == 1);
    const Lease next = take(cache, {5}, {.adapter = "a"});
    CHECK(old.grow_to(2) == Admission::granted);
    old.wrote(Tokens{2});
    CHECK(old.publish() == 0);
    CHECK(cache.peek(Tokens{1, 2}, {.adapter = "a"}).cached_tokens == 0);
    old.release();
    CHECK(cache.free_pages() == 19);
    CHECK(first_finding(cache).empty());
}

// --- Counting and options ------------------------------------------------------------------------

TEST_CASE("hit and missed tokens add up to those queried, and only granted requests count",
          "[C1]") {
    Cache cache = make_cache(2, 6);
    publish_prompt(cache, {1, 2, 3, 4, 5});
    for (int i = 0; i < 3; ++i) CHECK(cache.peek(Tokens{1, 2, 3, 4, 5}).cached_tokens == 4);
    {
        const Lease hit = take(cache, {1, 2, 3, 4, 5});
        const Lease other = take(cache, {7, 7, 7, 7, 7});
        CHECK(cache.acquire(Tokens{8, 8}).admission == Admission::exhausted);
        CHECK(cache.acquire(counted(13)).admission == Admission::never_fits);
    }
    const auto stats = cache.stats();
    CHECK(stats.hits == 1);
    CHECK(stats.misses == 2);
    CHECK(stats.queried_tokens == 15);
    CHECK(stats.hit_tokens == 4);
    CHECK(stats.missed_tokens == 11);
    CHECK(stats.exhausted == 1);
    CHECK(stats.never_fits == 1);
}

TEST_CASE("statistics are plain values of the state now", "[C2]") {
    Cache cache = make_cache(2, 10);
    publish_prompt(cache, {1, 2, 3, 4}, {.adapter = "a"});
    const Lease lease = take(cache, {1, 2, 0}, {.adapter = "a"});
    const auto stats = cache.stats();
    CHECK(stats.capacity_pages == 10);
    CHECK(stats.free_pages == 7);
    CHECK(stats.cached_pages == 2);
    CHECK(stats.pinned_pages == 1);
    CHECK(stats.evictable_pages == 1);
    CHECK(stats.leases == 1);
    CHECK(stats.namespaces == 1);
    CHECK(stats.nodes == 3);
    CHECK(stats.published_pages == 2);
    CHECK(stats.index_bytes > 0);
}

TEST_CASE("a page size of 0 is refused", "[R3]") {
    CHECK_THROWS_AS(Cache({.page_tokens = 0}, PagePool(4)), InvalidArgument);
}

TEST_CASE("a cache over a pool of no pages serves only the empty prompt", "[E4][M6]") {
    Cache cache = make_cache(1, 0);
    CHECK(take(cache, {}).block_table().empty());
    CHECK(cache.acquire(Tokens{1}).admission == Admission::never_fits);
    CHECK(cache.evict(1) == 0);
}

TEST_CASE("the pictures of a cache show every namespace once and no cleared tree", "[M7][L5]") {
    Cache cache = make_cache(1, 20);
    publish_prompt(cache, {1}, {.adapter = "a"});
    publish_prompt(cache, {2});
    const Lease cleared = publish_prompt(cache, {3}, {.adapter = "b"});
    cache.drop({.adapter = "b"});
    std::vector<std::string> names;
    cache.visit_trees([&](const Namespace& name, const auto& tree, kvstem::NodeId root) {
        names.push_back(text_of(name));
        CHECK(tree.child_count(root) == 1);
        // With this much kept in a node, a node of the tree is one cache line.
        CHECK(sizeof(tree.data(root)) == 12);
    });
    CHECK(names == std::vector<std::string>{"---", "(a)--"});
}

TEST_CASE("an audit of a cache that was not tampered with finds nothing", "[R2]") {
    Cache cache = make_cache(2, 20);
    CHECK(cache.audit().ok());
    const Lease lease = publish_prompt(cache, {1, 2, 3, 4}, {.adapter = "a"});
    CHECK(cache.audit().ok());
}

TEST_CASE("an audit finds a page whose count is not that of its owners", "[R2][G1]") {
    PageLedger ledger(4);
    kvstem::RadixCache<TracingPages> cache({.page_tokens = 2}, TracingPages(ledger));
    publish_prompt(cache, {1, 2});
    REQUIRE(cache.audit().ok());
    const std::uint32_t page = GENERATE(0u, 3u);  // a free one, and the one in the tree
    ++ledger.holds[page];
    const auto report = cache.audit();
    REQUIRE_FALSE(report.ok());
    CHECK(report.findings[0].what == std::string("a page's count is not the number of its owners"));
    CHECK(report.findings[0].subject == page);
    --ledger.holds[page];
    CHECK(cache.audit().ok());
}
