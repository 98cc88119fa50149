// SPDX-License-Identifier: MIT
// The strong guarantee of PrefixCache: every allocation and every copy that can fail is made to,
// and what can be seen of the cache afterwards is compared with what was seen before.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "kvstem/prefix_cache.hpp"
#include "support/archetypes.hpp"
#include "support/fail_allocation.hpp"
#include "support/throwing.hpp"

using kvstem::Namespace;
using kvstem::StoreOutcome;
using namespace kvstem_test;

namespace {

template <class Kv>
using Cache = kvstem::PrefixCache<Kv, kvstem::Token, ThrowingLogits>;

std::optional<ThrowingLogits> logits(float value) {
    return ThrowingLogits({value, value});
}

/// The sequences of the scene below; the last two are not stored in it.
const std::vector<Tokens>& sequences() {
    static const std::vector<Tokens> all{
        counted(10),
        joined(counted(6), {90, 91}),
        joined(counted(6), {80}),
        counted(3),
        {50, 51, 52},
        joined(counted(8), {70, 71}),
        {60, 61},
    };
    return all;
}
Namespace tenant() {
    return {.adapter = "an adapter with a name longer than a string keeps inline", .salt = "t"};
}

/// A cache with branches, an entry on the path of another, and two namespaces; nearly full.
template <class Kv>
void build_scene(Cache<Kv>& cache) {
    for (std::size_t i = 0; i < 5; ++i) {
        cache.store(sequences()[i], Kv(sequences()[i]), logits(static_cast<float>(i)));
    }
    cache.store(sequences()[0], Kv(sequences()[0]), logits(9), tenant());
    (void)cache.acquire(sequences()[3]);
    (void)cache.acquire(joined(counted(9), {99}));
}
constexpr kvstem::SnapshotCapacity scene_capacity{.max_entries = 6};

using Seen = std::vector<std::uint64_t>;

/// All that can be seen without changing anything, but not the memory of the index.
template <class Kv>
Seen look(const Cache<Kv>& cache) {
    const auto s = cache.stats();
    Seen seen{s.hits,    s.misses, s.queried_tokens, s.hit_tokens, s.missed_tokens,
              s.taken,   s.stored, s.replaced,       s.refused,    s.evictions,
              s.entries, s.bytes,  s.namespaces};
    const Namespace other{.adapter = "new"};
    for (const Namespace& name : {Namespace{}, tenant(), other}) {
        for (const Tokens& sequence : sequences()) {
            for (std::size_t n = 1; n <= sequence.size(); ++n) {
                const auto match = cache.peek(std::span(sequence).first(n), name);
                seen.push_back(match.tokens);
                seen.push_back(match.has_logits ? 1 : 0);
            }
        }
    }
    return seen;
}

/// Also what is seen while everything is evicted, and what each entry holds: this ends the cache.
template <class Kv>
Seen look_to_the_end(Cache<Kv>& cache) {
    Seen seen = look(cache);
    for (const Namespace& name : {Namespace{}, tenant()}) {
        for (const Tokens& sequence : sequences()) {
            const auto match = cache.peek(sequence, name);
            if (match.tokens != sequence.size() || !match.has_logits) continue;
            const auto hit = cache.acquire(sequence, name);
            seen.push_back(hit->kv.rows() == sequence ? 1 : 0);
            seen.push_back(static_cast<std::uint64_t>(hit->logits->row.at(0)));
        }
    }
    while (cache.evict()) {
        const Seen after = look(cache);
        seen.insert(seen.end(), after.begin(), after.end());
    }
    return seen;
}

/// The order in which everything is evicted, without using anything first.
template <class Kv>
Seen eviction_order(Cache<Kv>& cache) {
    Seen seen;
    while (cache.evict()) {
        const Seen after = look(cache);
        seen.insert(seen.end(), after.begin(), after.end());
    }
    return seen;
}

enum class Fuse { allocation, copy };

/// Makes the n-th allocation or copy inside `operation` fail, for n = 1, 2, … until it succeeds,
/// each time on a fresh scene, and compares. Returns how many times it failed.
template <class Kv, class Operation>
std::size_t fail_everywhere(Fuse fuse, Operation operation) {
    Cache<Kv> untouched(scene_capacity);
    build_scene(untouched);
    const Seen order = eviction_order(untouched);
    Cache<Kv> also_untouched(scene_capacity);
    build_scene(also_untouched);
    const Seen content = look_to_the_end(also_untouched);

    for (std::size_t n = 1; n < 200; ++n) {
        // One scene to see the order of eviction on, one to see the content.
        for (const bool content_next : {false, true}) {
            Cache<Kv> cache(scene_capacity);
            build_scene(cache);
            const Seen before = look(cache);
            bool threw = false;
            bool fired = false;
            if (fuse == Fuse::allocation) {
                const auto outcome = with_failing_allocation(n, [&] { operation(cache); });
                threw = outcome.threw;
                fired = outcome.fired;
            } else {
                const FailingCopy failing(n);
                try {
                    operation(cache);
                } catch (const CopyFailed&) {
                    threw = true;
                }
                fired = failing.fired();
            }
            CAPTURE(n);
            REQUIRE((fired || !threw));
            CHECK(cache.audit().ok());
            if (!threw) {
                CHECK(look(cache) != before);  // otherwise the operation was none
                if (!fired) return n - 1;
                continue;  // it did without what it did not get
            }
            CHECK(look(cache) == before);
            CHECK((content_next ? look_to_the_end(cache) == content
                                : eviction_order(cache) == order));
            CHECK(cache.audit().ok());
        }
    }
    FAIL("the operation never came to its end");
    return 0;
}

}  // namespace

TEST_CASE("an allocation that fails in store leaves the cache as it was", "[R1]") {
    const auto store = [](const Tokens& tokens, const Namespace& name = {}) {
        return [kv = CountingKv(tokens), row = logits(1), name](Cache<CountingKv>& cache) {
            cache.store(kv.rows(), kv, row, name);
        };
    };
    SECTION("of a branch") {
        CHECK(fail_everywhere<CountingKv>(Fuse::allocation, store(sequences()[5])) >= 2);
    }
    SECTION("of a branch that needs memory after the node was split") {
        const Tokens branch = joined(counted(8), counted(9000, 1000));
        CHECK(fail_everywhere<CountingKv>(Fuse::allocation, store(branch)) >= 3);
    }
    SECTION("of new tokens") {
        CHECK(fail_everywhere<CountingKv>(Fuse::allocation, store(sequences()[6])) >= 2);
    }
    SECTION("in place of an entry") {
        CHECK(fail_everywhere<CountingKv>(Fuse::allocation, store(sequences()[1])) >= 2);
    }
    SECTION("in the middle of a path") {
        CHECK(fail_everywhere<CountingKv>(Fuse::allocation, store(counted(2))) >= 2);
    }
    SECTION("in a namespace") {
        CHECK(fail_everywhere<CountingKv>(Fuse::allocation, store(sequences()[5], tenant())) >= 2);
    }
    SECTION("in a new namespace") {
        CHECK(fail_everywhere<CountingKv>(Fuse::allocation,
                                          store(sequences()[5], {.adapter = "new"})) >= 3);
    }
}

TEST_CASE("an allocation that fails in a moving store leaves the cache and the source as they were",
          "[R1]") {
    // A fresh cache, so that every table, segment and list has to be allocated.
    const Tokens tokens = counted(20'000);
    std::size_t fired = 0;
    for (std::size_t n = 1; n < 100; ++n) {
        Cache<MoveOnlyKv> cache;
        MoveOnlyKv kv(tokens);
        std::optional<ThrowingLogits> row = logits(3);
        const auto outcome = with_failing_allocation(n, [&] {
            cache.store(tokens, std::move(kv), std::move(row), {.salt = "a new tenant"});
        });
        CHECK(cache.audit().ok());
        CHECK(outcome.threw == outcome.fired);
        if (!outcome.fired) {
            CHECK(cache.size() == 1);
            break;
        }
        ++fired;
        CHECK(kv.rows() == tokens);  // NOLINT(bugprone-use-after-move): it was not moved from
        CHECK(row->row.size() == 2);
        CHECK(cache.size() == 0);
        CHECK(cache.stats().namespaces == 0);
        CHECK(cache.stats().stored == 0);
    }
    CHECK(fired >= 5);
}

TEST_CASE("an allocation that fails in a long life of stores leaves the cache as it was", "[R1]") {
    // Grows tables, pools and segments at other times than the fresh scenes do.
    kvstem::PrefixCache<CountingKv> cache({.max_entries = 3000});
    std::size_t fired = 0;
    for (kvstem::Token i = 0; i < 2500; ++i) {
        const Tokens tokens = joined(counted(static_cast<std::size_t>(i % 40)), {1000 + i, i});
        const Namespace name =
            i % 50 == 0 ? Namespace{.version = i % 100 == 0 ? "a" : "b"} : Namespace{};
        for (std::size_t n = 1;; ++n) {
            CountingKv kv(tokens);
            const std::size_t entries = cache.size();
            const auto before = cache.peek(tokens, name);
            const std::size_t namespaces = cache.stats().namespaces;
            const auto outcome =
                with_failing_allocation(n, [&] { cache.store(tokens, std::move(kv), {}, name); });
            if (!outcome.threw) {
                REQUIRE(cache.size() == entries + 1);
                break;
            }
            ++fired;
            REQUIRE(outcome.fired);
            REQUIRE(cache.audit().ok());
            REQUIRE(cache.size() == entries);
            REQUIRE(cache.stats().namespaces == namespaces);
            REQUIRE(cache.peek(tokens, name).tokens == before.tokens);
            REQUIRE(kv.rows() == tokens);  // NOLINT(bugprone-use-after-move)
        }
        if (i % 250 == 0) REQUIRE(cache.audit().ok());
    }
    CHECK(fired > 15);
    CHECK(cache.audit().ok());
}

TEST_CASE("an allocation that fails in acquire or take leaves the cache as it was", "[R1]") {
    const auto prompt = GENERATE(0U, 1U, 2U, 3U, 4U, 5U);
    const Tokens tokens = joined(sequences()[prompt], {123});
    CAPTURE(prompt);
    CHECK(fail_everywhere<CountingKv>(Fuse::allocation, [&](Cache<CountingKv>& cache) {
              (void)cache.acquire(tokens);
          }) >= 1);
    // What is moved out needs no memory; the last prompt ends inside a sequence and is copied.
    const std::size_t failures = fail_everywhere<PrefixKv>(
        Fuse::allocation, [&](Cache<PrefixKv>& cache) { (void)cache.take(tokens); });
    CHECK(failures == (prompt == 5 ? 1 : 0));
}

TEST_CASE("a KV or logits that fail to be copied leave the cache as it was", "[R1]") {
    SECTION("store, of a new entry") {
        CHECK(fail_everywhere<ThrowingKv>(Fuse::copy, [](Cache<ThrowingKv>& cache) {
                  const ThrowingKv kv(sequences()[5]);
                  const auto row = logits(1);
                  cache.store(sequences()[5], kv, row);
              }) == 2);
    }
    SECTION("store, in place of an entry") {
        CHECK(fail_everywhere<ThrowingKv>(Fuse::copy, [](Cache<ThrowingKv>& cache) {
                  const ThrowingKv kv(sequences()[1]);
                  const auto row = logits(1);
                  cache.store(sequences()[1], kv, row);
              }) == 2);
    }
    SECTION("store, in a new namespace") {
        CHECK(fail_everywhere<ThrowingKv>(Fuse::copy, [](Cache<ThrowingKv>& cache) {
                  const ThrowingKv kv(sequences()[1]);
                  const auto row = logits(1);
                  cache.store(sequences()[1], kv, row, {.adapter = "new"});
              }) == 2);
    }
    SECTION("store, moving: nothing is copied") {
        CHECK(fail_everywhere<ThrowingKv>(Fuse::copy, [](Cache<ThrowingKv>& cache) {
                  cache.store(sequences()[5], ThrowingKv(sequences()[5]), logits(1));
              }) == 0);
    }
    SECTION("acquire of a whole sequence: KV and logits") {
        CHECK(fail_everywhere<ThrowingKv>(Fuse::copy, [](Cache<ThrowingKv>& cache) {
                  (void)cache.acquire(sequences()[0]);
              }) == 2);
    }
    SECTION("acquire of a part: copy and truncate") {
        CHECK(fail_everywhere<ThrowingKv>(Fuse::copy, [](Cache<ThrowingKv>& cache) {
                  (void)cache.acquire(sequences()[5]);
              }) == 2);
    }
    SECTION("acquire of a part: prefix") {
        CHECK(fail_everywhere<ThrowingPrefixKv>(Fuse::copy, [](Cache<ThrowingPrefixKv>& cache) {
                  (void)cache.acquire(sequences()[5]);
              }) == 1);
    }
    SECTION("take of a whole sequence: nothing is copied") {
        CHECK(fail_everywhere<ThrowingKv>(Fuse::copy, [](Cache<ThrowingKv>& cache) {
                  (void)cache.take(sequences()[0]);
              }) == 0);
    }
    SECTION("take of a part") {
        CHECK(fail_everywhere<ThrowingKv>(Fuse::copy, [](Cache<ThrowingKv>& cache) {
                  (void)cache.take(sequences()[5]);
              }) == 2);
    }
}

TEST_CASE("evicting, dropping and clearing need no memory", "[R1]") {
    Cache<CountingKv> cache(scene_capacity);
    build_scene(cache);
    bool evicted = false;
    std::size_t dropped = 0;
    const auto outcome = with_failing_allocation(1, [&] {
        evicted = cache.evict();
        dropped = cache.drop(tenant());
        cache.clear();
    });
    CHECK_FALSE(outcome.fired);
    CHECK(evicted);
    CHECK(dropped == 1);
    CHECK(cache.size() == 0);
    CHECK(cache.audit().ok());
}

TEST_CASE("a cache that finds no memory at its construction does not exist and leaks nothing",
          "[R1]") {
    std::size_t fired = 0;
    for (std::size_t n = 1; n < 20; ++n) {
        const auto outcome = with_failing_allocation(n, [] { const Cache<CountingKv> cache; });
        CHECK(outcome.threw == outcome.fired);
        if (!outcome.fired) break;
        ++fired;
    }
    CHECK(fired >= 1);
}
