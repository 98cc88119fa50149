// SPDX-License-Identifier: MIT
// Lease: one request's hold on its pages, from acquiring to the end on every path.

#include <cstddef>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "kvstem/radix_cache.hpp"
#include "support/fail_allocation.hpp"
#include "support/radix_picture.hpp"
#include "support/token_rows.hpp"

using kvstem::InvalidArgument;
using kvstem::StaleHandle;
using namespace kvstem_test;
using Cache = kvstem::RadixCache<>;
using Lease = Cache::Lease;

namespace {

struct Fixture {
    Cache cache;
    TokenRows rows;

    Fixture(std::size_t page_tokens, std::size_t pages)
        : cache({.page_tokens = page_tokens}, PagePool(pages)), rows(pages, page_tokens) {}

    Lease take(const Tokens& prompt) {
        auto acquired = cache.acquire(prompt);
        REQUIRE(acquired);
        return std::move(acquired.lease);
    }
    /// Acquires and computes; not published.
    Lease computed(const Tokens& prompt) {
        Lease lease = take(prompt);
        rows.compute(lease, std::span(prompt).subspan(lease.adopted()));
        return lease;
    }
    Lease published(const Tokens& prompt) {
        Lease lease = computed(prompt);
        lease.publish();
        return lease;
    }
    Lease fork(Lease& lease) {
        auto forked = lease.fork(rows);
        REQUIRE(forked);
        return std::move(forked.lease);
    }
    void check_audit() const { CHECK(first_finding(cache).empty()); }
};

void check_is_stale(Lease& lease, TokenRows& rows) {
    CHECK(lease.empty());
    CHECK_THROWS_AS(lease.adopted(), StaleHandle);
    CHECK_THROWS_AS(lease.written(), StaleHandle);
    CHECK_THROWS_AS(lease.published(), StaleHandle);
    CHECK_THROWS_AS(lease.capacity(), StaleHandle);
    CHECK_THROWS_AS(lease.block_table(), StaleHandle);
    CHECK_THROWS_AS(lease.wrote(Tokens{1}), StaleHandle);
    CHECK_THROWS_AS(lease.grow_to(1), StaleHandle);
    CHECK_THROWS_AS(lease.publish(), StaleHandle);
    CHECK_THROWS_AS(lease.switch_to_tree(), StaleHandle);
    CHECK_THROWS_AS(lease.fork(rows), StaleHandle);
    CHECK_THROWS_AS(lease.cut_back(0, rows), StaleHandle);
    lease.release();
}

}  // namespace

TEST_CASE("a lease gives everything back as it dies, on every path", "[L1]") {
    Fixture f(2, 10);
    SECTION("at the end of its scope") {
        const Lease lease = f.published(counted(5));
        CHECK(f.cache.free_pages() == 7);
    }
    SECTION("by an exception") {
        CHECK_THROWS_AS(
            [&] {
                const Lease lease = f.published(counted(5));
                throw std::runtime_error("the engine failed");
            }(),
            std::runtime_error);
    }
    SECTION("by being assigned to") {
        Lease lease = f.published(counted(5));
        lease = Lease();
        CHECK(lease.empty());
    }
    SECTION("by being replaced by a lease on the same prefix") {
        Lease lease = f.published(counted(5));
        lease = f.take(counted(5));
        CHECK(lease.adopted() == 4);
        CHECK(f.cache.stats().leases == 1);
    }
    SECTION("early") {
        Lease lease = f.published(counted(5));
        lease.release();
        check_is_stale(lease, f.rows);
    }
    CHECK(f.cache.pinned_pages() == 0);
    CHECK(f.cache.free_pages() == 8);
    CHECK(f.cache.cached_pages() == 2);
    CHECK(f.cache.stats().leases == 0);
    f.check_audit();
}

TEST_CASE("a moved lease is the same lease, and the one moved from is empty", "[L1]") {
    Fixture f(2, 10);
    Lease lease = f.computed(counted(5));
    const std::string before = picture_of_lease(lease);
    Lease moved(std::move(lease));
    check_is_stale(lease, f.rows);  // NOLINT(bugprone-use-after-move): that is the point
    CHECK(picture_of_lease(moved) == before);
    lease = std::move(moved);
    CHECK(picture_of_lease(lease) == before);
    Lease& same = lease;
    lease = std::move(same);
    CHECK(picture_of_lease(lease) == before);
    f.check_audit();
}

TEST_CASE("a hundred leases that end together leave nothing behind", "[L1]") {
    Fixture f(2, 100);
    for (int round = 0; round < 2; ++round) {
        std::vector<Lease> leases;
        for (kvstem::Token i = 0; i < 100; ++i) leases.push_back(f.computed({i, i}));
        CHECK(f.cache.free_pages() == 0);
        f.check_audit();
        leases.clear();
        CHECK(f.cache.free_pages() == 100);
        CHECK(f.cache.stats().leases == 0);
        f.check_audit();
    }
}

TEST_CASE("any use of an empty lease is refused", "[L1]") {
    TokenRows rows(1, 1);
    Lease lease;
    check_is_stale(lease, rows);
}

TEST_CASE("leases that outlive the cache become empty", "[L1]") {
    TokenRows rows(10, 2);
    Lease first;
    Lease second;
    {
        Fixture f(2, 10);
        first = f.published(counted(5));
        second = f.take(counted(5));
        f.cache.clear();
    }
    check_is_stale(first, rows);
    check_is_stale(second, rows);
}

TEST_CASE("rows are declared up to the capacity and not beyond", "[L4]") {
    Fixture f(2, 10);
    Lease lease = f.take(counted(3));
    CHECK(lease.capacity() == 4);
    CHECK(lease.written() == 0);
    lease.wrote(Tokens{1, 2, 3});
    CHECK_THROWS_AS(lease.wrote(Tokens{4, 5}), InvalidArgument);
    CHECK_THROWS_WITH(lease.wrote(Tokens{4, 5}), ContainsSubstring("position 3"));
    CHECK(lease.written() == 3);
    lease.wrote(Tokens{4});
    lease.wrote(Tokens{});
    CHECK(lease.written() == 4);
    CHECK_THROWS_AS(lease.wrote(Tokens{5}), InvalidArgument);
}

TEST_CASE("publishing rows without memory declares none of them", "[L4][R1]") {
    std::size_t fired = 0;
    for (std::size_t n = 1;; ++n) {
        Fixture f(2, 16);
        Lease lease = f.take(counted(9));
        lease.wrote(counted(1));  // a part of a page, so that the rest goes behind it
        const Tokens rest = counted(8, 1);
        const auto outcome = with_failing_allocation(n, [&] { lease.publish(rest); });
        REQUIRE(outcome.threw == outcome.fired);
        if (!outcome.fired) break;
        ++fired;
        CHECK(lease.written() == 1);
        CHECK(lease.published() == 0);
        f.check_audit();
        CHECK(lease.publish(rest) == 4);
        CHECK(lease.written() == 9);
        f.check_audit();
    }
    CHECK(fired > 1);
}

TEST_CASE("growing takes the pages that are missing, and no others", "[L4]") {
    Fixture f(2, 4);
    Lease lease = f.take(counted(3));
    const Ids before = ids(lease.block_table());
    CHECK(lease.grow_to(4) == Admission::granted);
    CHECK(lease.grow_to(0) == Admission::granted);
    CHECK(ids(lease.block_table()) == before);
    CHECK(lease.grow_to(5) == Admission::granted);
    CHECK(lease.block_table().size() == 3);
    CHECK(ids(lease.block_table().first(2)) == before);
    const Lease other = f.take({9});
    CHECK(lease.grow_to(7) == Admission::exhausted);
    CHECK(lease.grow_to(9) == Admission::never_fits);
    CHECK(lease.capacity() == 6);
}

TEST_CASE("a fork shares the whole pages and copies the partial one", "[L2]") {
    Fixture f(2, 10);
    Lease lease = f.computed({1, 2, 3, 4, 5});
    const bool is_published = GENERATE(false, true);
    if (is_published) CHECK(lease.publish() == 2);
    Lease fork = f.fork(lease);
    CHECK(f.rows.copies == 1);
    CHECK(fork.adopted() == 5);
    CHECK(fork.published() == lease.published());
    CHECK(ids(fork.block_table().first(2)) == ids(lease.block_table().first(2)));
    CHECK(fork.block_table()[2] != lease.block_table()[2]);
    CHECK(f.cache.free_pages() == 6);
    f.rows.compute(fork, Tokens{6});
    f.rows.compute(lease, Tokens{7});
    CHECK(f.rows.read(fork) == Tokens{1, 2, 3, 4, 5, 6});
    CHECK(f.rows.read(lease) == Tokens{1, 2, 3, 4, 5, 7});
    f.check_audit();
    // Either may publish and end first; the other's pages stay.
    lease.publish();
    f.check_audit();
    lease.release();
    f.check_audit();
    CHECK(f.rows.read(fork) == Tokens{1, 2, 3, 4, 5, 6});
    CHECK(fork.publish() == 1);
    CHECK(f.cache.stats().duplicate_pages == 0);
    f.check_audit();
    fork.release();
    CHECK(f.cache.cached_pages() == 4);
    CHECK(f.cache.free_pages() == 6);
    CHECK(f.cache.evict(10) == 4);
    CHECK(f.cache.free_pages() == 10);
}

TEST_CASE("a fork at a page's end needs no page and no copy", "[L2]") {
    Fixture f(2, 2);
    Lease lease = f.computed({1, 2, 3, 4});
    Lease fork = f.fork(lease);
    CHECK(f.rows.copies == 0);
    CHECK(f.cache.refs(fork.block_table()[0]) == 2);
    CHECK(f.cache.free_pages() == 0);
}

TEST_CASE("forks of forks share one page with all its owners counted", "[L2][G1]") {
    Fixture f(2, 4);
    std::vector<Lease> leases;
    leases.push_back(f.computed({1, 2, 3, 4}));
    for (int i = 0; i < 20; ++i) leases.push_back(f.fork(leases[static_cast<std::size_t>(i) / 2]));
    const PageId page = leases[0].block_table()[0];
    CHECK(f.cache.refs(page) == 21);
    leases[7].publish();
    CHECK(f.cache.refs(page) == 22);
    f.check_audit();
    while (!leases.empty()) {
        leases.erase(leases.begin() + static_cast<std::ptrdiff_t>(leases.size() / 2));
        f.check_audit();
    }
    CHECK(f.cache.refs(page) == 1);
    CHECK(f.cache.evictable_pages() == 2);
}

TEST_CASE("cutting back frees the whole pages behind the position", "[L3]") {
    Fixture f(2, 10);
    Lease lease = f.computed(counted(7));
    CHECK(lease.grow_to(12) == Admission::granted);
    CHECK(lease.cut_back(3, f.rows) == Admission::granted);
    CHECK(lease.written() == 3);
    CHECK(lease.capacity() == 4);
    CHECK(f.cache.free_pages() == 8);
    CHECK(f.rows.copies == 0);
    CHECK(f.rows.read(lease) == counted(3));
    CHECK_THROWS_AS(lease.cut_back(4, f.rows), InvalidArgument);
    CHECK(lease.cut_back(3, f.rows) == Admission::granted);
    CHECK(lease.cut_back(0, f.rows) == Admission::granted);
    CHECK(lease.block_table().empty());
    CHECK(f.cache.free_pages() == 10);
    f.check_audit();
}

TEST_CASE("cutting into a page of the tree puts a private copy in its place", "[L3]") {
    Fixture f(2, 10);
    Lease lease = f.published(counted(6));
    const Ids tree = ids(lease.block_table());
    CHECK(lease.cut_back(3, f.rows) == Admission::granted);
    CHECK(f.rows.copies == 1);
    CHECK(lease.block_table()[0] == tree[0]);
    CHECK(lease.block_table()[1] != tree[1]);
    CHECK(lease.published() == 2);
    CHECK(lease.adopted() == 0);
    CHECK(f.cache.pinned_pages() == 1);
    CHECK(f.cache.evictable_pages() == 2);
    f.check_audit();
    // What the tree has is not written to.
    f.rows.compute(lease, Tokens{99});
    CHECK(f.rows.page(tree[1]) == Tokens{2, 3});
    CHECK(f.rows.read(lease) == Tokens{0, 1, 2, 99});
    CHECK(lease.publish() == 1);
    CHECK(f.cache.peek(counted(6)).cached_tokens == 6);
    CHECK(f.cache.peek(Tokens{0, 1, 2, 99}).cached_tokens == 4);
    f.check_audit();
}

TEST_CASE("cutting into a page that a fork also reads puts a private copy in its place", "[L3]") {
    Fixture f(2, 10);
    Lease lease = f.computed(counted(4));
    Lease fork = f.fork(lease);
    const PageId shared = lease.block_table()[1];
    CHECK(fork.cut_back(3, f.rows) == Admission::granted);
    CHECK(fork.block_table()[1] != shared);
    f.rows.compute(fork, Tokens{99});
    CHECK(f.rows.read(lease) == counted(4));
    CHECK(f.cache.refs(shared) == 1);
    // Now it is the other's alone, and may be written without a copy.
    CHECK(lease.cut_back(3, f.rows) == Admission::granted);
    CHECK(lease.block_table()[1] == shared);
    CHECK(f.rows.copies == 1);
    f.check_audit();
}

TEST_CASE("cutting into a page that a fork has published copies it", "[L3][P2]") {
    Fixture f(2, 10);
    Lease lease = f.computed(counted(4));
    Lease fork = f.fork(lease);
    fork.publish();
    fork.release();
    CHECK(lease.cut_back(3, f.rows) == Admission::granted);
    f.rows.compute(lease, Tokens{99});
    CHECK(f.rows.copies == 1);
    CHECK(f.cache.peek(counted(4)).cached_tokens == 4);
    auto reader = f.take(counted(5));
    CHECK(f.rows.page(reader.block_table()[1]) == Tokens{2, 3});
    f.check_audit();
}

TEST_CASE("cutting into one's own duplicate of a cached page needs no copy", "[L3][P2]") {
    Fixture f(2, 10);
    Lease slow = f.computed(counted(6));
    const Ids own = ids(slow.block_table());
    f.published(counted(6));
    CHECK(slow.publish() == 0);
    CHECK(f.cache.stats().duplicate_pages == 3);
    CHECK(slow.cut_back(3, f.rows) == Admission::granted);
    CHECK(f.rows.copies == 0);
    CHECK(ids(slow.block_table()) == Ids{own[0], own[1]});
    f.rows.compute(slow, Tokens{99});
    f.check_audit();
    CHECK(slow.switch_to_tree() == 1);
    CHECK(f.rows.read(slow) == Tokens{0, 1, 2, 99});
    CHECK(slow.publish() == 1);
    f.check_audit();
    slow.release();
    CHECK(f.cache.cached_pages() == 4);
    CHECK(f.cache.free_pages() == 6);
}

TEST_CASE("a lease whose prefix was adopted can be cut below what it adopted", "[L3]") {
    Fixture f(2, 10);
    f.published(counted(6));
    Lease lease = f.computed(joined(counted(6), {50, 51, 52}));
    CHECK(lease.adopted() == 6);
    CHECK(lease.cut_back(4, f.rows) == Admission::granted);
    CHECK(lease.adopted() == 4);
    CHECK(f.cache.pinned_pages() == 2);
    CHECK(f.cache.evictable_pages() == 1);
    CHECK(f.cache.free_pages() == 7);
    CHECK(f.rows.copies == 0);
    f.check_audit();
}

TEST_CASE("a cut that needs a copy and finds no page changes nothing", "[L3][E5]") {
    Fixture f(2, 3);
    Lease lease = f.published(counted(6));
    const std::string before = picture_of(f.cache);
    CHECK(lease.cut_back(3, f.rows) == Admission::exhausted);
    CHECK(picture_of(f.cache) == before);
    CHECK(lease.written() == 6);
    CHECK(lease.cut_back(4, f.rows) == Admission::granted);
    f.check_audit();
}

TEST_CASE("a speculative draft is written, verified and cut back in place", "[L3][L4]") {
    Fixture f(4, 10);
    f.published(counted(8));
    Lease lease = f.computed(counted(9));
    Tokens answer = counted(9);
    for (kvstem::Token step = 0; step < 6; ++step) {
        REQUIRE(lease.grow_to(lease.written() + 5) == Admission::granted);
        const std::size_t accepted = static_cast<std::size_t>(step) % 4;
        Tokens draft = counted(5, 100 * step);
        f.rows.compute(lease, draft);
        REQUIRE(lease.cut_back(answer.size() + accepted, f.rows) == Admission::granted);
        draft.resize(accepted);
        answer = joined(answer, draft);
        CHECK(f.rows.read(lease) == answer);
        f.check_audit();
    }
    CHECK(f.rows.copies == 0);
    lease.publish();
    CHECK(f.cache.peek(answer).cached_tokens == answer.size() / 4 * 4);
}
