// SPDX-License-Identifier: MIT
// The calls of leases, those with a window among them, and the construction of a cache, in the
// plain and the shared form, while memory fails: nothing has changed, and the call then succeeds.

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string>
#include <utility>

#include "catch.hpp"
#include "kvstem/radix_cache.hpp"
#include "kvstem/shared_radix_cache.hpp"
#include "support/fail_allocation.hpp"
#include "support/heap_bytes.hpp"
#include "support/radix_picture.hpp"
#include "support/token_rows.hpp"

using namespace kvstem_test;
using kvstem::Token;

namespace {

using Plain = kvstem::RadixCache<>;
using Shared = kvstem::SharedRadixCache<>;

std::string picture(const Plain& cache) {
    return picture_of(cache);
}
std::string picture(const Shared& cache) {
    return cache.inspect([](const Plain& inside) { return picture_of(inside); });
}

constexpr auto no_rows = [](PageId, PageId, std::size_t) {};
constexpr kvstem::SlidingWindow window{.window_tokens = 3};

/// A published prefix, a lease that goes on from it, and one whose window has slid `age` times.
template <class Cache>
struct World {
    Cache cache{{.page_tokens = 2}, PagePool(200)};
    typename Cache::Lease lease{};
    typename Cache::Lease sliding{};

    explicit World(std::size_t age) {
        for (std::size_t i = 0; i < age; ++i) {
            publish_prompt(cache, {100 + static_cast<Token>(i), 0});
        }
        publish_prompt(cache, {1, 2, 3, 4, 5, 6, 7, 8});
        lease = std::move(cache.acquire(Tokens{1, 2, 3, 4, 9, 9, 9, 9, 9}).lease);
        sliding = std::move(cache.acquire_sliding(Tokens{1, 2, 50, 51, 52}, window).lease);
        sliding.publish(Tokens{50, 51, 52});
        for (std::size_t i = 0; i < 2 * age; ++i) {
            sliding.wrote(Tokens{0});
            sliding.slide();
        }
    }
    [[nodiscard]] std::string picture() const {
        return ::picture(cache) + '\n' + picture_of_lease(lease) + '\n' +
               picture_of_lease(sliding) + ' ' + std::to_string(sliding.kept_from());
    }
};

template <class Cache>
using Call = void (*)(World<Cache>&);

void require_granted(Admission admission) {
    if (admission != Admission::granted) FAIL("refused");
}

/// Fails each allocation of `call` in turn, in worlds of many ages, so that each table and buffer is
/// full once. The fault fired exactly if the call threw.
template <class Cache>
void fail_each_allocation(const char* name, Call<Cache> prepare, Call<Cache> call) {
    std::size_t faults = 0;
    for (std::size_t age = 0; age < 40; ++age) {
        for (std::size_t n = 1;; ++n) {
            World<Cache> world(age);
            prepare(world);
            const std::string before = world.picture();
            const auto [fired, threw] = with_failing_allocation(n, [&] { call(world); });
            CAPTURE(name, age, n);
            REQUIRE(threw == fired);
            REQUIRE(world.cache.audit().ok());
            if (!fired) break;
            ++faults;
            REQUIRE(world.picture() == before);
            call(world);
            REQUIRE(world.cache.audit().ok());
            world.lease.release();
            world.sliding.release();
            world.cache.evict(200);
            REQUIRE(world.cache.free_pages() == 200);
        }
    }
    CAPTURE(name);
    CHECK(faults > 0);
}

template <class Cache>
void nothing(World<Cache>&) {}

}  // namespace

TEMPLATE_TEST_CASE("each call of a lease without memory changes nothing", "[R1][L2][L3][L4]", Plain,
                   Shared) {
    using W = World<TestType>;
    const auto fails = fail_each_allocation<TestType>;
    fails("wrote", nothing, [](W& w) { w.lease.wrote(Tokens{9, 9, 9, 9, 9}); });
    fails(
        "publish what the tree has in part", [](W& w) { w.lease.wrote(Tokens{5, 6, 9, 9}); },
        [](W& w) { w.lease.publish(); });
    fails("publish tokens", nothing, [](W& w) { w.lease.publish(Tokens{9, 9, 9, 9, 9}); });
    fails(
        "publish tokens behind others", [](W& w) { w.lease.wrote(Tokens{9}); },
        [](W& w) { w.lease.publish(Tokens{9, 9, 9}); });
    fails("publish tokens into a node that is split for it", nothing,
          [](W& w) { w.lease.publish(Tokens{5, 6, 9, 9}); });
    fails("grow_to", nothing, [](W& w) { require_granted(w.lease.grow_to(90)); });
    fails(
        "fork", [](W& w) { w.lease.wrote(Tokens{9}); },
        [](W& w) {
            const auto forked = w.lease.fork(no_rows);
            require_granted(forked.admission);
        });
    fails("cut_back", nothing, [](W& w) { require_granted(w.lease.cut_back(1, no_rows)); });
}

TEMPLATE_TEST_CASE("each call of a lease that slides changes nothing without memory",
                   "[R1][W1][W2][W4]", Plain, Shared) {
    using W = World<TestType>;
    const auto fails = fail_each_allocation<TestType>;
    fails("acquire_sliding", nothing, [](W& w) {
        const auto acquired = w.cache.acquire_sliding(Tokens{1, 2, 3, 4, 5, 60}, window,
                                                      Namespace{.salt = "a new one"});
        require_granted(acquired.admission);
    });
    fails("slide", [](W& w) { w.sliding.wrote(Tokens{0, 0}); }, [](W& w) { w.sliding.slide(); });
    fails("anchor", nothing, [](W& w) { require_granted(w.sliding.anchor(w.sliding.written())); });
    fails("grow_to", nothing,
          [](W& w) { require_granted(w.sliding.grow_to(w.sliding.capacity() + 40)); });
}

TEMPLATE_TEST_CASE("a cache that finds no memory at its construction leaks nothing", "[R1]", Plain,
                   Shared) {
    std::size_t faults = 0;
    bool agreed = true;
    const auto fail_at_each = [&] {
        for (std::size_t n = 1;; ++n) {
            const auto outcome = with_failing_allocation(
                n, [] { const TestType cache({.page_tokens = 2}, PagePool(5000)); });
            agreed = agreed && outcome.threw == outcome.fired;
            if (!outcome.fired) return;
            ++faults;
        }
    };
    fail_at_each();  // what the heap keeps at hand of freed pieces counts, and is there from now on
    const HeapGrowth growth;
    fail_at_each();
    const std::size_t lost = growth.bytes();
    CHECK(agreed);
    CHECK(lost == 0);
    CHECK(faults > 0);
}
