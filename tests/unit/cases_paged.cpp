// SPDX-License-Identifier: MIT
// Faults that caches of this kind have had elsewhere, as small operation sequences on RadixCache.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "kvstem/radix_cache.hpp"
#include "support/radix_picture.hpp"
#include "support/test_scale.hpp"
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

template <class C>
typename C::Lease take(C& cache, const Tokens& prompt, const Namespace& name = {}) {
    auto acquired = cache.acquire(prompt, name);
    REQUIRE(acquired);
    return std::move(acquired.lease);
}

Tokens first(const Tokens& tokens, std::size_t n) {
    return {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(n)};
}

/// The prefixes in the order in which evicting page by page removes them.
std::vector<Tokens> evict_all(Cache& cache) {
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

}  // namespace

// --- Pages have exactly one story ----------------------------------------------------------------

// Page ids are never taken in, so only a page source that hands one out twice gets this far.
TEST_CASE("a page that stands in the tree is refused under other tokens", "[C01][P3]") {
    const Tokens other = GENERATE(Tokens{1, 2, 3, 9}, Tokens{8, 8, 3, 9});
    PageLedger ledger(4);
    kvstem::RadixCache<TracingPages> cache({.page_tokens = 2}, TracingPages(ledger));
    auto one = take(cache, {1, 2, 3, 4});
    const Ids ab = ids(one.block_table());
    ledger.tamper = [&](std::span<PageId> out) {
        for (std::size_t i = 0; i < out.size(); ++i) {
            ledger.holds[index_of(out[i])] = 0;
            ++ledger.holds[index_of(ab[i])];
            out[i] = ab[i];
        }
    };
    auto two = take(cache, other);
    REQUIRE(ids(two.block_table()) == ab);
    one.wrote(Tokens{1, 2, 3, 4});
    two.wrote(other);
    CHECK(one.publish() == 2);
    one.release();
    const auto before = cached_pages_of(cache);
    CHECK_THROWS_AS(two.publish(), InvalidArgument);
    CHECK_THROWS_WITH(two.publish(), ContainsSubstring("stands in the tree"));
    CHECK(two.published() == 0);
    CHECK(cached_pages_of(cache) == before);
    CHECK(cache.cached_pages() == 2);
    CHECK(cache.evictable_pages() == 2);
}

TEST_CASE("a page that stands in one block table twice is refused", "[C01][P3]") {
    PageLedger ledger(4);
    kvstem::RadixCache<TracingPages> cache({.page_tokens = 2}, TracingPages(ledger));
    std::size_t positions = 4;
    SECTION("handed out twice in one call") {
        ledger.tamper = [&](std::span<PageId> out) { out[1] = out[0]; };
        CHECK(ledger.free() == 4);
    }
    SECTION("handed out again later") {
        ledger.tamper = [&](std::span<PageId> out) { out[0] = PageId{3}; };
        positions = 2;
        CHECK(ledger.free() == 4);
    }
    auto lease = take(cache, counted(positions));
    REQUIRE(lease.grow_to(4) == Admission::granted);
    REQUIRE(lease.block_table()[0] == lease.block_table()[1]);
    lease.wrote(counted(4));
    const std::string before = picture_of(cache);
    CHECK_THROWS_AS(lease.publish(), InvalidArgument);
    CHECK(picture_of(cache) == before);
    CHECK(lease.published() == 0);
    CHECK(cache.cached_pages() == 0);
}

TEST_CASE("the tree keeps its pages and takes only what is new to it", "[C02][P2]") {
    Cache cache = make_cache(2, 8);
    TokenRows rows(8, 2);
    Lease one = take(cache, {1, 2, 3, 4});
    Lease two = take(cache, {1, 2, 3, 4, 5, 6});
    rows.compute(one, Tokens{1, 2, 3, 4});
    rows.compute(two, Tokens{1, 2, 3, 4, 5, 6});
    const Ids ab = ids(one.block_table());
    const Ids xyz = ids(two.block_table());
    CHECK(one.publish() == 2);
    one.release();
    CHECK(two.publish() == 1);
    const auto cached = cached_pages_of(cache);
    CHECK(cached.at({"---", {1, 2}}).page == ab[0]);
    CHECK(cached.at({"---", {1, 2, 3, 4}}).page == ab[1]);
    CHECK(cached.at({"---", {1, 2, 3, 4, 5, 6}}).page == xyz[2]);
    // Not to be handed out while they are read.
    CHECK(cache.free_pages() == 3);
    const Lease other = take(cache, {9, 9, 9, 9, 9, 9});
    for (const PageId page : other.block_table()) {
        CHECK(page != xyz[0]);
        CHECK(page != xyz[1]);
    }
    CHECK(rows.read(two) == Tokens{1, 2, 3, 4, 5, 6});
    two.release();
    CHECK(cache.refs(xyz[0]) == 0);
    CHECK(cache.refs(xyz[1]) == 0);
    CHECK(cache.free_pages() == 2);
}

TEST_CASE("the partial page of a finished request is free again", "[C03][P1]") {
    Cache cache = make_cache(4, 8);
    const Ids table = [&] {
        Lease lease = publish_prompt(cache, counted(6));
        return ids(lease.block_table());
    }();
    CHECK(cache.cached_pages() == 1);
    CHECK(cache.refs(table[0]) == 1);
    CHECK(cache.refs(table[1]) == 0);
    CHECK(cache.free_pages() == 7);
}

TEST_CASE("every page is freed exactly once in any order of cuts", "[C04][L3]") {
    const bool is_published = GENERATE(false, true);
    const std::vector<std::size_t> cuts =
        GENERATE(std::vector<std::size_t>{13, 8}, std::vector<std::size_t>{8, 0},
                 std::vector<std::size_t>{19, 16, 13, 8, 1, 0}, std::vector<std::size_t>{0},
                 std::vector<std::size_t>{16, 16, 15, 15}, std::vector<std::size_t>{});
    PageLedger ledger(16);
    kvstem::RadixCache<TracingPages> cache({.page_tokens = 8}, TracingPages(ledger));
    TokenRows rows(16, 8);
    auto lease = take(cache, counted(20));
    rows.compute(lease, counted(20));
    if (is_published) lease.publish();
    for (const std::size_t position : cuts) {
        REQUIRE(lease.cut_back(position, rows) == Admission::granted);
        REQUIRE(lease.block_table().size() == (position + 7) / 8);
        REQUIRE(rows.read(lease) == counted(position));
        REQUIRE(first_finding(cache).empty());
    }
    lease.release();
    CHECK(ledger.free() + cache.cached_pages() == 16);
    CHECK(cache.cached_pages() == (is_published ? 2 : 0));
    CHECK(ledger.wrong_calls == 0);
}

TEST_CASE("pages and their owners add up after every step", "[C05][G1][G3]") {
    std::mt19937 random(GENERATE(range(1u, 9u)));
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random()) % n; };
    PageLedger ledger(24);
    kvstem::RadixCache<TracingPages> cache({.page_tokens = 2}, TracingPages(ledger));
    TokenRows rows(24, 2);
    std::vector<kvstem::RadixCache<TracingPages>::Lease> leases;
    for (int step = 0; step < 400; ++step) {
        const std::size_t op = below(7);
        if (op < 2 || leases.empty()) {
            Tokens prompt(below(12));
            for (auto& token : prompt) token = static_cast<kvstem::Token>(below(2));
            auto acquired = cache.acquire(prompt);
            if (acquired) {
                rows.compute(acquired.lease, std::span(prompt).subspan(acquired.lease.adopted()));
                leases.push_back(std::move(acquired.lease));
            }
        } else if (op == 2) {
            leases[below(leases.size())].publish();
        } else if (op == 3) {
            cache.evict(below(4));
        } else if (op == 4) {
            auto forked = leases[below(leases.size())].fork(rows);
            if (forked) leases.push_back(std::move(forked.lease));
        } else if (op == 5) {
            auto& lease = leases[below(leases.size())];
            if (lease.cut_back(below(lease.written() + 1), rows) != Admission::granted) continue;
        } else {
            leases.erase(leases.begin() + static_cast<std::ptrdiff_t>(below(leases.size())));
        }
        std::size_t held = 0;
        for (std::uint32_t page = 0; page < 24; ++page) held += cache.refs(PageId{page}) ? 1 : 0;
        REQUIRE(cache.free_pages() + held == 24);
        REQUIRE(first_finding(cache).empty());
        REQUIRE(ledger.wrong_calls == 0);
    }
    leases.clear();
    CHECK(ledger.free() + cache.cached_pages() == 24);
}

TEST_CASE("nothing that was only planned is ever matched", "[C06][P1][P6]") {
    Cache cache = make_cache(2, 20);
    Lease aborted = take(cache, counted(8));
    CHECK(adopted_by(cache, counted(8)) == 0);
    CHECK(aborted.publish() == 0);
    aborted.release();
    CHECK(adopted_by(cache, counted(8)) == 0);
    CHECK(cache.free_pages() == 20);
    CHECK(cache.stats().nodes == 0);
}

TEST_CASE("the index shrinks with its live tokens, not with the largest insert", "[C07]") {
    const std::size_t n = 1'000'000 / large_test_divisor;
    const std::size_t branches = 1000 / large_test_divisor;
    Cache cache = make_cache(1, n + 2 * branches + 16);
    const Tokens base = counted(n);
    publish_prompt(cache, base);
    for (std::size_t i = 0; i < branches; ++i) {
        Tokens branch = first(base, (i + 1) * (n / (branches + 1)));
        branch.push_back(-1);
        publish_prompt(cache, branch);
    }
    CHECK(cache.cached_pages() == n + branches);
    CHECK(cache.stats().nodes >= 2 * branches);
    // A token and its page id are 8 bytes. Half as much again may be dead, and what does not depend
    // on the tokens is a fixed amount and a bit for each page of the pool.
    const std::size_t fixed = 512 * 1024 + n / 8;
    CHECK(cache.stats().index_bytes >= 8 * n);
    for (const std::size_t keep : {n / 2, n / 5, n / 10, n / 100, std::size_t{0}}) {
        cache.evict(cache.cached_pages() - keep);
        REQUIRE(cache.cached_pages() == keep);
        CHECK(cache.stats().index_bytes <= 12 * keep + fixed);
        CHECK(first_finding(cache).empty());
    }
    CHECK(cache.stats().nodes == 0);
    CHECK(cache.free_pages() == n + 2 * branches + 16);
}

TEST_CASE("publishing and evicting for ever grows nothing", "[C08]") {
    const std::size_t rounds = 1'000'000 / large_test_divisor;
    Cache cache = make_cache(2, 64);
    std::mt19937 random(8);
    const Lease root = publish_prompt(cache, counted(16));
    const auto round = [&] {
        // Some diverge inside the root, the others behind it.
        Tokens tokens = first(counted(16), random() % 4 == 0 ? 2 * (random() % 8) : 16);
        for (std::size_t n = 2 + random() % 12; n > 0; --n) {
            tokens.push_back(1000 + static_cast<kvstem::Token>(random() % 100'000));
        }
        publish_prompt(cache, tokens);
        cache.evict(64);
    };
    for (int i = 0; i < 1000; ++i) round();
    const auto baseline = cache.stats();
    CHECK(baseline.cached_pages == 8);
    for (std::size_t i = 1000; i < rounds; ++i) round();
    const auto after = cache.stats();
    CHECK(after.nodes == baseline.nodes);
    CHECK(after.nodes <= 1 + 8);  // at most one for each page of the root
    CHECK(after.cached_pages == 8);
    CHECK(after.free_pages == 56);
    CHECK(after.index_bytes <= baseline.index_bytes);
    CHECK(first_finding(cache).empty());
}

// --- Matching ------------------------------------------------------------------------------------

TEST_CASE("a prompt shorter than the one cached page matches nothing and breaks nothing",
          "[C09][M6]") {
    Cache cache = make_cache(4, 4);
    publish_prompt(cache, counted(4));
    const std::string before = picture_of(cache);
    CHECK(cache.peek(counted(3)).cached_tokens == 0);
    CHECK(picture_of(cache) == before);
    const auto cached = cached_pages_of(cache);
    CHECK(adopted_by(cache, counted(3)) == 0);
    CHECK(cached_pages_of(cache) == cached);
    CHECK(cache.evict(1) == 1);
    CHECK(cache.free_pages() == 4);
    CHECK(cache.stats().nodes == 0);
}

TEST_CASE("an adapter that was reloaded under the same name starts from nothing", "[C12][M7]") {
    Cache cache = make_cache(2, 8);
    const Namespace v1{.adapter = "legal", .version = "1"};
    const Namespace v2{.adapter = "legal", .version = "2"};
    publish_prompt(cache, counted(4), v1);
    CHECK(cache.peek(counted(4), v2).cached_tokens == 0);
    CHECK(adopted_by(cache, counted(5), v2) == 0);
    CHECK(cache.peek(counted(4), v1).cached_tokens == 4);
    CHECK(cache.drop(v1) == 2);
    CHECK(cache.free_pages() == 8);
    CHECK(cache.peek(counted(4), v1).cached_tokens == 0);
}

TEST_CASE("a repeated prompt leaves a token to run, and the empty one does not fail",
          "[C15][M4][M6]") {
    for (const std::size_t page_tokens : {1u, 3u, 4u}) {
        Cache cache = make_cache(page_tokens, 40);
        publish_prompt(cache, counted(12));
        const Lease again = take(cache, counted(12));
        CHECK(again.adopted() == 12 - page_tokens);
        CHECK(adopted_by(cache, {}) == 0);
    }
}

TEST_CASE("adopted lengths for every length of prompt", "[C16][M1][M4]") {
    const std::size_t page_tokens = GENERATE(1u, 2u, 4u, 16u);
    for (std::size_t length = 0; length <= 3 * page_tokens + 1; ++length) {
        Cache cache = make_cache(page_tokens, 16);
        const Tokens x = counted(length);
        publish_prompt(cache, x);
        CAPTURE(page_tokens, length);
        const std::size_t whole = length / page_tokens * page_tokens;
        CHECK(cache.peek(x).cached_tokens == whole);
        CHECK(adopted_by(cache, x) ==
              (whole != 0 && whole == length ? whole - page_tokens : whole));
        CHECK(adopted_by(cache, joined(x, {-1})) == whole);
    }
}

TEST_CASE("a tree as deep as its sequence is long is handled without recursion", "[C17][R3]") {
    const std::size_t n = 1'000'000 / large_test_divisor;
    const Tokens tokens = counted(n);
    Cache cache = make_cache(1, n + 1);
    {
        // One lease that publishes after every token makes a node of each.
        Lease lease = take(cache, tokens);
        for (std::size_t i = 0; i < n; ++i) {
            lease.wrote(std::span(tokens).subspan(i, 1));
            lease.publish();
        }
    }
    CHECK(cache.stats().nodes == n + 1);
    CHECK(cache.peek(tokens).cached_tokens == n);
    {
        const Lease lease = take(cache, tokens);
        CHECK(lease.adopted() == n - 1);
        CHECK(cache.pinned_pages() == n - 1);
    }
    std::size_t deepest = 0;
    visit_nodes(cache, [&](const Namespace&, const auto& tree, kvstem::NodeId node) {
        deepest += tree.pages(node);
    });
    CHECK(deepest == n);
    CHECK(cache.evict(n / 2) == n / 2);
    CHECK(cache.peek(tokens).cached_tokens == n - n / 2);
    const bool is_cleared = GENERATE(true, false);
    if (is_cleared) {
        cache.clear();
        CHECK(cache.free_pages() == n + 1);
    }
}

// --- Holding on ----------------------------------------------------------------------------------

TEST_CASE("a pin on the deepest node holds the whole path", "[C18][E1]") {
    Cache cache = make_cache(1, 16);
    publish_prompt(cache, {1, 2});
    publish_prompt(cache, {1, 2, 3, 4});
    publish_prompt(cache, {1, 2, 3, 4, 5});
    Lease lease = take(cache, {1, 2, 3, 4, 5, 0});
    CHECK(cache.evict(16) == 0);
    CHECK(cache.cached_pages() == 5);
    lease.release();
    CHECK(cache.evict(16) == 5);
    CHECK(cache.free_pages() == 16);
}

TEST_CASE("a pin is on what was adopted, and goes with its lease", "[C19][M5]") {
    Cache cache = make_cache(1, 16);
    publish_prompt(cache, {1, 2, 3, 4});
    Lease lease = take(cache, {1, 2, 9});
    CHECK(lease.adopted() == 2);
    CHECK(cache.pinned_pages() == 2);
    publish_prompt(cache, {1, 2, 9});
    CHECK(cache.pinned_pages() == 2);
    lease.release();
    CHECK(cache.pinned_pages() == 0);
    CHECK(cache.evictable_pages() == 5);
}

TEST_CASE("releasing a lease twice leaves another's pin intact", "[C20][L1]") {
    Cache cache = make_cache(1, 16);
    publish_prompt(cache, {1, 2, 3});
    Lease one = take(cache, {1, 2, 3, 0});
    const Lease two = take(cache, {1, 2, 3, 0});
    one.release();
    one.release();
    CHECK(cache.pinned_pages() == 3);
    CHECK(cache.evict(16) == 0);
    CHECK(two.adopted() == 3);
    CHECK(first_finding(cache).empty());
}

TEST_CASE("a lease from before a clear harms nothing that was published since", "[C21][L5]") {
    Cache cache = make_cache(2, 8);
    Lease old = publish_prompt(cache, counted(4));
    const Ids old_pages = ids(old.block_table());
    cache.clear();
    const Ids new_pages = ids(publish_prompt(cache, counted(4)).block_table());
    const auto cached = cached_pages_of(cache);
    CHECK(cache.free_pages() == 4);
    for (const PageId page : old_pages) CHECK(cache.refs(page) == 1);
    old.release();
    CHECK(cached_pages_of(cache) == cached);
    for (const PageId page : old_pages) CHECK(cache.refs(page) == 0);
    for (const PageId page : new_pages) CHECK(cache.refs(page) == 1);
    CHECK(cache.free_pages() == 6);
}

TEST_CASE("in a full pool the matched prefix is not the victim of its own request",
          "[C22][M3][E4]") {
    Cache cache = make_cache(1, 4);
    SECTION("another victim is found") {
        publish_prompt(cache, {1, 2, 3});
        publish_prompt(cache, {7});
        REQUIRE(cache.free_pages() == 0);
        const Lease lease = take(cache, {1, 2, 3, 4});
        CHECK(lease.adopted() == 3);
        CHECK(cache.peek(Tokens{7}).cached_tokens == 0);
    }
    SECTION("there is none") {
        publish_prompt(cache, {1, 2, 3});
        const Lease other = take(cache, {8});
        REQUIRE(cache.free_pages() == 0);
        const std::string before = picture_of(cache);
        CHECK(cache.acquire(Tokens{1, 2, 3, 4}).admission == Admission::exhausted);
        CHECK(picture_of(cache) == before);
        // A shorter match leaves something to evict.
        const Lease shorter = take(cache, {1, 2, 9});
        CHECK(shorter.adopted() == 2);
    }
    CHECK(first_finding(cache).empty());
}

TEST_CASE("a request that has published is not its own victim", "[C23][E1][E5]") {
    Cache cache = make_cache(2, 5);
    TokenRows rows(5, 2);
    const Lease other = take(cache, {7, 8, 9});
    Lease lease = take(cache, {1, 2, 3, 4, 5});
    rows.compute(lease, Tokens{1, 2, 3, 4, 5});
    lease.publish();
    REQUIRE(cache.free_pages() == 0);
    REQUIRE(cache.cached_pages() == 2);
    const std::string before = picture_of(cache);
    const std::string lease_before = picture_of_lease(lease);
    CHECK(lease.grow_to(7) == Admission::exhausted);
    CHECK(lease.fork(rows).admission == Admission::exhausted);
    CHECK(lease.cut_back(1, rows) == Admission::exhausted);
    CHECK(cache.acquire(Tokens{1, 2, 3, 4, 6}).admission == Admission::exhausted);
    CHECK(picture_of(cache) == before);
    CHECK(picture_of_lease(lease) == lease_before);
    CHECK(rows.read(lease) == Tokens{1, 2, 3, 4, 5});
}

TEST_CASE("a lease that is dropped without use leaves nothing pinned", "[C25][L1]") {
    Cache cache = make_cache(1, 8);
    publish_prompt(cache, {1, 2, 3});
    CHECK(cache.acquire(Tokens{1, 2, 3, 4}).admission == Admission::granted);
    CHECK(cache.pinned_pages() == 0);
    CHECK(cache.free_pages() == 5);
    CHECK_THROWS_AS(
        [&] {
            const Lease lease = take(cache, {1, 2, 3, 4});
            throw SourceFailed();
        }(),
        SourceFailed);
    CHECK(cache.pinned_pages() == 0);
    CHECK(cache.free_pages() == 5);
    CHECK(cache.stats().leases == 0);
}

// --- Order of leaving ----------------------------------------------------------------------------

TEST_CASE("the part of a node that was not used goes before the part that was", "[C26][M5][E2]") {
    Cache cache = make_cache(1, 8);
    publish_prompt(cache, {1, 2, 3, 4});
    publish_prompt(cache, {7, 8});
    CHECK(adopted_by(cache, {1, 2, 0}) == 2);
    CHECK(evict_all(cache) ==
          std::vector<Tokens>{{1, 2, 3, 4}, {1, 2, 3}, {7, 8}, {7}, {1, 2}, {1}});
}

TEST_CASE("leaves that were never used again go by their creation, every time", "[C27][E2]") {
    const auto order = [] {
        Cache cache = make_cache(1, 60);
        publish_prompt(cache, {0});
        std::vector<Tokens> made;
        std::mt19937 random(27);
        for (int i = 0; i < 50; ++i) {
            const Tokens leaf{0, 1000 * static_cast<kvstem::Token>(random() % 1000) + i};
            publish_prompt(cache, leaf);
            made.push_back(leaf);
        }
        made.push_back({0});
        return std::pair(made, evict_all(cache));
    };
    const auto [made, gone] = order();
    CHECK(gone == made);
    CHECK(order().second == gone);
}

TEST_CASE("one page is evicted from a million leaves as from a thousand", "[C28][E3]") {
    const std::size_t leaves = GENERATE(std::size_t{1000}, 1'000'000 / large_test_divisor);
    Cache cache = make_cache(1, leaves + 1);
    for (std::size_t i = 0; i < leaves; ++i) {
        publish_prompt(cache, {static_cast<kvstem::Token>(i)});
    }
    REQUIRE(cache.cached_pages() == leaves);
    // Each goes in its turn; were the leaves scanned for it, this would not end.
    for (std::size_t i = 0; i < leaves; ++i) {
        if (cache.evict(1) != 1 || cache.cached_pages() != leaves - 1 - i) FAIL("at leaf " << i);
        if (i % 1000 == 0)
            CHECK(cache.peek(Tokens{static_cast<kvstem::Token>(i)}).cached_tokens == 0);
    }
    CHECK(cache.stats().nodes == 0);
}

TEST_CASE("no cached page is taken while a free one exists", "[C29][G4]") {
    Cache cache = make_cache(1, 10);
    publish_prompt(cache, {1, 2, 3, 4});
    Lease lease = take(cache, {7, 7, 7});
    for (std::size_t n = 4; n <= 6; ++n) {
        CHECK(lease.grow_to(n) == Admission::granted);
        CHECK(cache.cached_pages() == 4);
    }
    CHECK(cache.stats().evicted_pages == 0);
    CHECK(lease.grow_to(7) == Admission::granted);
    CHECK(cache.stats().evicted_pages == 1);
}
