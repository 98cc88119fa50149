// SPDX-License-Identifier: MIT
// RadixCache while memory, copy hooks or the page source fail: nothing may have changed, and every
// page is given back.

#include <cstddef>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "kvstem/radix_cache.hpp"
#include "support/fail_allocation.hpp"
#include "support/radix_picture.hpp"
#include "support/token_rows.hpp"
#include "support/tracing_pages.hpp"

using namespace kvstem_test;

namespace {

struct HookFailed : std::exception {
    [[nodiscard]] const char* what() const noexcept override { return "the copy hook failed"; }
};

using Cache = kvstem::RadixCache<>;

/// Some cached pages, and a lease that reads one of them and has two and a half more, not
/// published.
///
///     [1 2]─[3 4 5 6 7 8]   lease: 1 2 | 3 9 | 9 9 | 9, of which [1 2] is adopted
///     a: [1 2 3 4]          and `extra` pages in leaves of their own
struct World {
    std::size_t pages;
    Cache cache;
    TokenRows rows;
    Cache::Lease lease{};

    explicit World(std::size_t extra = 0)
        : pages(12 + extra), cache({.page_tokens = 2}, PagePool(pages)), rows(pages, 2) {
        for (std::size_t i = 0; i < extra; ++i) {
            published(counted(2, 100 + static_cast<kvstem::Token>(i)), {});
        }
        published({1, 2, 3, 4, 5, 6, 7, 8}, {});
        published({1, 2, 3, 4}, {.adapter = "a"});
        lease = std::move(cache.acquire(Tokens{1, 2, 3, 9, 9, 9, 9}).lease);
        rows.compute(lease, Tokens{3, 9, 9, 9, 9});
    }
    void published(const Tokens& tokens, const Namespace& name) {
        auto other = std::move(cache.acquire(tokens, name).lease);
        rows.compute(other, std::span(tokens).subspan(other.adopted()));
        other.publish();
    }
    [[nodiscard]] std::string picture() const {
        return picture_of(cache) + '\n' + picture_of_lease(lease);
    }
};

/// Runs `action` on fresh worlds for n = 1, 2, … with the n-th allocation failing, until it makes
/// no n-th one. After each failure nothing has changed, and the action then succeeds. Returns how
/// many failures there were.
template <class Prepare, class Action>
std::size_t fail_every_allocation_of(std::size_t extra, Prepare& prepare, Action& action) {
    for (std::size_t n = 1;; ++n) {
        World world(extra);
        prepare(world);
        const std::string before = world.picture();
        const auto [fired, threw] = with_failing_allocation(n, [&] { action(world); });
        CAPTURE(n, extra);
        REQUIRE(threw == fired);  // no failure is swallowed
        REQUIRE(first_finding(world.cache).empty());
        if (!fired) return n - 1;
        REQUIRE(world.picture() == before);
        action(world);
        REQUIRE(first_finding(world.cache).empty());
        REQUIRE(world.picture() != before);
        world.lease.release();
        REQUIRE(world.cache.free_pages() + world.cache.cached_pages() == world.pages);
        world.cache.evict(world.pages);
        REQUIRE(world.cache.free_pages() == world.pages);
    }
}

/// The same with more and more nodes in the tree, so that each of its tables is full once.
template <class Prepare, class Action>
void fail_every_allocation(Prepare&& prepare, Action&& action, std::size_t least_faults) {
    std::size_t faults = 0;
    for (std::size_t extra = 0; extra < 70; ++extra) {
        faults += fail_every_allocation_of(extra, prepare, action);
    }
    CHECK(faults >= least_faults);
}

const auto nothing = [](World&) {};

}  // namespace

TEST_CASE("acquiring without memory changes nothing", "[R1]") {
    SECTION("in the middle of a node") {
        fail_every_allocation(
            nothing,
            [&](World& world) {
                auto acquired = world.cache.acquire(Tokens{1, 2, 3, 4, 5, 6, 0}, {}, world.rows);
                if (acquired.admission != Admission::granted) FAIL("refused");
            },
            1);
    }
    SECTION("in a namespace that does not exist yet") {
        fail_every_allocation(
            nothing,
            [&](World& world) {
                auto acquired = world.cache.acquire(Tokens{1, 2, 3, 4}, {.adapter = "a new one"});
                if (acquired.admission != Admission::granted) FAIL("refused");
            },
            2);
    }
    SECTION("evicting for it") {
        fail_every_allocation(
            nothing,
            [&](World& world) {
                auto acquired = world.cache.acquire(counted(16, 50));
                if (acquired.admission != Admission::granted) FAIL("refused");
            },
            1);
    }
}

TEST_CASE("declaring rows without memory changes nothing", "[R1]") {
    fail_every_allocation(
        [](World& world) { CHECK(world.lease.grow_to(20) == Admission::granted); },
        [](World& world) { world.lease.wrote(Tokens{9, 9, 9, 9, 9}); }, 1);
}

TEST_CASE("growing without memory changes nothing", "[R1]") {
    const std::size_t positions = GENERATE(9u, 19u);  // within what is free, and evicting for it
    fail_every_allocation(
        nothing,
        [&](World& world) {
            if (world.lease.grow_to(positions) != Admission::granted) FAIL("refused");
        },
        1);
}

TEST_CASE("publishing without memory changes nothing", "[R1][P3]") {
    SECTION("behind a node that is split for it") {
        fail_every_allocation(nothing, [](World& world) { world.lease.publish(); }, 1);
    }
    SECTION("where the tree has part of it, which is split for it") {
        fail_every_allocation([](World& world) { world.published({1, 2, 3, 9, 5, 5}, {}); },
                              [](World& world) { world.lease.publish(); }, 70);
    }
    SECTION("pages that a fork has published") {
        fail_every_allocation(
            [](World& world) {
                auto fork = std::move(world.lease.fork(world.rows).lease);
                CHECK(fork.cut_back(4, world.rows) == Admission::granted);
                CHECK(fork.publish() == 1);
            },
            [](World& world) { world.lease.publish(); }, 1);
    }
}

TEST_CASE("forking without memory changes nothing", "[R1][L2]") {
    std::optional<Cache::Lease> kept;
    fail_every_allocation([&](World&) { kept.reset(); },
                          [&](World& world) {
                              auto forked = world.lease.fork(world.rows);
                              if (forked.admission != Admission::granted) FAIL("refused");
                              kept = std::move(forked.lease);
                              // The picture of the world has one lease more, which ends here.
                              kept.reset();
                              world.rows.compute(world.lease, Tokens{4});
                          },
                          3);
}

TEST_CASE("cutting back without memory changes nothing", "[R1][L3]") {
    const std::size_t position = GENERATE(1u, 3u, 4u);
    fail_every_allocation([](World& world) { world.lease.publish(); },
                          [&](World& world) {
                              if (world.lease.cut_back(position, world.rows) != Admission::granted)
                                  FAIL("refused");
                          },
                          1);
}

TEST_CASE("giving back needs no memory", "[R1][L1]") {
    for (std::size_t n = 1; n <= 8; ++n) {
        World world;
        world.lease.publish();
        auto other = std::move(world.cache.acquire(Tokens{1, 2, 3, 9, 0}).lease);
        auto late = std::move(world.cache.acquire(Tokens{1, 2, 3, 4, 0}, {.adapter = "a"}).lease);
        {
            const FailingAllocation failing(n);
            world.lease.switch_to_tree();
            other.release();
            world.cache.evict(2);
            world.cache.drop({.adapter = "a"});
            late.release();
            world.cache.clear();
            world.lease.release();
        }
        CHECK(world.cache.free_pages() == world.pages);
        CHECK(world.cache.stats().nodes == 0);
        CHECK(first_finding(world.cache).empty());
    }
}

TEST_CASE("a copy hook that throws leaves pages, prefixes and leases as they were",
          "[R1][M8][L2][L3]") {
    World world;
    std::size_t thrown = 0;
    const auto hook = [&](PageId, PageId, std::size_t) {
        ++thrown;
        throw HookFailed();
    };
    SECTION("in an acquire") {
        const std::string before = pages_picture_of(world.cache);
        CHECK_THROWS_AS(world.cache.acquire(Tokens{1, 2, 3, 7, 7}, {}, hook), HookFailed);
        CHECK_THROWS_AS(world.cache.acquire(Tokens{1, 2, 3, 4, 5, 7, 7}, {}, hook), HookFailed);
        CHECK(pages_picture_of(world.cache) == before);
        CHECK(thrown == 2);
    }
    SECTION("in a fork") {
        const std::string before = world.picture();
        CHECK_THROWS_AS(world.lease.fork(hook), HookFailed);
        CHECK(world.picture() == before);
        CHECK(thrown == 1);
    }
    SECTION("in a fork of what is published") {
        world.lease.publish();
        const std::string before = world.picture();
        CHECK_THROWS_AS(world.lease.fork(hook), HookFailed);
        CHECK(world.picture() == before);
        CHECK(thrown == 1);
    }
    SECTION("in a cut into the tree's pages") {
        world.lease.publish();
        const std::string before = world.picture();
        for (const std::size_t position : {1u, 3u, 5u}) {
            CHECK_THROWS_AS(world.lease.cut_back(position, hook), HookFailed);
            CHECK(world.picture() == before);
        }
        CHECK(thrown == 3);
    }
    SECTION("in a cut into a fork's page") {
        auto fork = std::move(world.lease.fork(world.rows).lease);
        const std::string before = world.picture();
        CHECK_THROWS_AS(world.lease.cut_back(5, hook), HookFailed);
        CHECK(world.picture() == before);
        CHECK(thrown == 1);
    }
    SECTION("in a cut after a clear") {
        world.lease.publish();
        world.cache.clear();
        const std::string before = world.picture();
        CHECK_THROWS_AS(world.lease.cut_back(3, hook), HookFailed);
        CHECK(world.picture() == before);
        CHECK(thrown == 1);
    }
    CHECK(world.rows.read(world.lease) == Tokens{1, 2, 3, 9, 9, 9, 9});
    CHECK(first_finding(world.cache).empty());
    world.lease.release();
    CHECK(world.cache.free_pages() + world.cache.cached_pages() == world.pages);
}

TEST_CASE("a page source that throws leaves pages, prefixes and leases as they were", "[R1][G1]") {
    PageLedger ledger(10);
    {
        kvstem::RadixCache<TracingPages> cache({.page_tokens = 2}, TracingPages(ledger));
        TokenRows rows(10, 2);
        auto lease = std::move(cache.acquire(Tokens{1, 2, 3, 4, 5}).lease);
        rows.compute(lease, Tokens{1, 2, 3, 4, 5});
        bool publishes = false;
        SECTION("nothing is published") {
            CHECK(lease.published() == 0);
        }
        SECTION("some is published") {
            CHECK(lease.publish() == 2);
            publishes = true;
        }
        const auto picture = [&] { return picture_of(cache) + picture_of_lease(lease); };
        const std::string before = picture();
        const auto fails = [&](std::size_t& countdown, auto&& action) {
            countdown = 1;
            CHECK_THROWS_AS(action(), SourceFailed);
            CHECK(countdown == 0);  // it fired
            CHECK(picture() == before);
            CHECK(first_finding(cache).empty());
        };
        fails(ledger.throw_from_acquire_in, [&] { (void)cache.acquire(Tokens{7, 7}); });
        fails(ledger.throw_from_acquire_in,
              [&] { (void)cache.acquire(Tokens{7, 7}, {.salt = "new"}); });
        fails(ledger.throw_from_acquire_in, [&] { (void)lease.grow_to(9); });
        fails(ledger.throw_from_acquire_in, [&] { (void)lease.fork(rows); });
        if (publishes) {
            fails(ledger.throw_from_acquire_in, [&] { (void)lease.cut_back(3, rows); });
            fails(ledger.throw_from_acquire_in, [&] { (void)lease.cut_back(1, rows); });
        } else {
            fails(ledger.throw_from_retain_in, [&] { (void)lease.fork(rows); });
            ledger.throw_from_retain_in = 2;
            CHECK_THROWS_AS(lease.fork(rows), SourceFailed);
            CHECK(picture() == before);
        }
        CHECK(rows.read(lease) == Tokens{1, 2, 3, 4, 5});
    }
    CHECK(ledger.free() == 10);
    CHECK(ledger.wrong_calls == 0);
}

TEST_CASE("a page source that throws after an eviction loses the evicted pages and nothing else",
          "[R1][G3]") {
    PageLedger ledger(4);
    kvstem::RadixCache<TracingPages> cache({.page_tokens = 1}, TracingPages(ledger));
    publish_prompt(cache, {1, 2, 3, 4});
    ledger.throw_from_acquire_in = 1;
    CHECK_THROWS_AS(cache.acquire(Tokens{1, 2, 7, 8}), SourceFailed);
    CHECK(ledger.throw_from_acquire_in == 0);
    CHECK(cache.peek(Tokens{1, 2, 3, 4}).cached_tokens == 2);
    CHECK(cache.pinned_pages() == 0);
    CHECK(cache.stats().queried_tokens == 4);
    CHECK(ledger.free() == 2);
    CHECK(first_finding(cache).empty());
}
