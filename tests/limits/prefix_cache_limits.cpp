// SPDX-License-Identifier: MIT
// PrefixCache at large sizes: each with a bound on bytes or evictions, never on time.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "kvstem/prefix_cache.hpp"
#include "kvstem/reference/random.hpp"
#include "support/counting_kv.hpp"
#include "support/heap_bytes.hpp"
#include "support/small_stack.hpp"
#include "support/test_scale.hpp"

using namespace kvstem_test;
using kvstem::Token;

namespace {

constexpr std::size_t million = 1'000'000 / large_test_divisor;

/// A length and no memory, so that what grows is the cache.
class Length {
  public:
    explicit Length(std::size_t n) : n_(n) {}
    [[nodiscard]] std::size_t length() const noexcept { return n_; }
    [[nodiscard]] std::size_t bytes() const noexcept { return n_; }
    void truncate(std::size_t n) { n_ = n; }

  private:
    std::size_t n_;
};
using Cache = kvstem::PrefixCache<Length>;

void store(Cache& cache, const Tokens& tokens, const kvstem::Namespace& name = {}) {
    (void)cache.store(tokens, Length(tokens.size()), std::nullopt, name);
}

Token token(std::size_t i) {
    return static_cast<Token>(i);
}

}  // namespace

TEST_CASE("a million snapshots cost a bounded number of bytes each and leave in the order of use",
          "[limits][R3][S4]") {
    const HeapGrowth growth;
    {
        Cache cache({.max_entries = million});
        for (std::size_t i = 0; i < million; ++i) store(cache, {7, token(i), 9});
        REQUIRE(cache.size() == million);
        // A slot, a node with its run of tokens, its place in the table of children.
        // A quarter more than was measured at full size (see the limits of RadixCache).
        constexpr std::size_t bytes_each = large_test_divisor == 1 ? 272 : 400;
        CHECK(cache.stats().index_bytes <= bytes_each * million + 64 * 1024);
        CHECK(growth.bytes() <= bytes_each * million + 64 * 1024);
        std::size_t found = 0;
        for (std::size_t i = 0; i < million; ++i) {
            found += cache.peek(Tokens{7, token(i), 9}).tokens;
        }
        CHECK(found == 3 * million);

        store(cache, {8});
        CHECK(cache.stats().evictions == 1);
        CHECK(cache.peek(Tokens{7, 0, 9}).tokens == 1);  // any other entry, cut
        CHECK(cache.take(Tokens{7, 1, 9}).has_value());
        CHECK(cache.size() == million - 1);
        store(cache, {8, 8});
        CHECK(cache.stats().evictions == 1);
        CHECK(cache.audit().ok());
        for (std::size_t i = 0; i < million / 2; ++i) REQUIRE(cache.evict());
        CHECK(cache.audit().ok());
        cache.clear();
        CHECK(cache.size() == 0);
        CHECK(cache.stats().bytes == 0);
    }
    CHECK(growth.bytes() <= 16 * 1024);  // the test's own
}

TEST_CASE("a chain of snapshots is looked up, taken, audited and dropped on a small stack",
          "[limits][R3][C17]") {
    // Prefixes of each other: n² / 2 nodes are passed.
    const std::size_t n = large_test_divisor == 1 ? 8000 : 1500;
    const Tokens tokens = counted(n);
    on_small_stack([&] {
        Cache cache({.max_entries = 2 * n});
        const auto fill = [&](const kvstem::Namespace& name) {
            for (std::size_t i = 1; i <= n; ++i) {
                (void)cache.store(std::span(tokens).first(i), Length(i), std::nullopt, name);
            }
        };
        fill({});
        fill({.salt = "s"});
        CHECK(cache.size() == 2 * n);
        CHECK(cache.stats().index_bytes <= 2 * n * 320 + 8 * n + 64 * 1024);
        CHECK(cache.peek(tokens).tokens == n);
        CHECK(cache.take(tokens).has_value());
        CHECK(cache.peek(tokens).tokens == n - 1);
        CHECK(cache.audit().ok());
        CHECK(cache.drop({.salt = "s"}) == n);
        // The oldest first, which is the shortest: the chain is opened from its top.
        for (std::size_t i = 0; i < n / 2; ++i) CHECK(cache.evict());
        CHECK(cache.peek(tokens).tokens == n - 1);
        CHECK(cache.audit().ok());
        cache.clear();
        fill({});
    });
}

TEST_CASE(
    "a snapshot of two million tokens is kept once, and one that parts from it half-way adds "
    "only its own",
    "[limits][R3]") {
    const std::size_t n = 2'000'000 / large_test_divisor;
    Cache cache;
    Tokens tokens = counted(n);
    store(cache, tokens);
    CHECK(cache.stats().index_bytes <= 4 * n + 128 * 1024);
    const auto hit = cache.acquire(tokens);
    REQUIRE(hit);
    CHECK(hit->tokens == n);

    const std::size_t before = cache.stats().index_bytes;
    tokens.resize(n / 2);
    tokens.push_back(-1);
    store(cache, tokens);
    // A few nodes, and one more segment of 256 KiB for runs of tokens to come.
    CHECK(cache.stats().index_bytes - before <= (256 + 4) * 1024);
    CHECK(cache.peek(tokens).tokens == n / 2 + 1);
    CHECK(cache.audit().ok());
}

TEST_CASE("ten thousand namespaces of snapshots leave nothing behind", "[limits][M7][R3]") {
    constexpr std::size_t n = 10'000;
    Cache cache({.max_entries = n});
    const auto salt = [](std::size_t i) { return "tenant " + std::to_string(i); };
    const auto fill = [&] {
        for (std::size_t i = 0; i < n; ++i) {
            const std::string name = salt(i);
            store(cache, {1, 2, 3}, {.salt = name});
        }
    };
    fill();
    cache.clear();
    const HeapGrowth growth;
    fill();
    CHECK(cache.stats().namespaces == n);
    CHECK(cache.stats().index_bytes <= 512 * n);
    CHECK(growth.bytes() <= 640 * n);
    store(cache, {1, 2, 3});
    CHECK(cache.stats().evictions == 1);
    CHECK(cache.stats().namespaces == n - 1);
    CHECK(cache.audit().ok());
    std::size_t dropped = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const std::string name = salt(i);
        dropped += cache.drop({.salt = name});
    }
    CHECK(dropped == n - 1);
    cache.clear();
    CHECK(cache.stats().namespaces == 0);
    CHECK(growth.bytes() <= 8192);
}

TEST_CASE("after ten million operations on snapshots the memory is what it was", "[limits][C08]") {
    Cache cache({.max_entries = 64});
    kvstem::reference::SplitMix64 random(3);
    Tokens tokens;
    std::size_t operations = 0;
    const auto run = [&](std::size_t n) {
        for (const std::size_t end = operations + n; operations < end; ++operations) {
            const auto below = [&](std::size_t most) { return random.next() % most; };
            tokens.clear();
            for (std::size_t k = 1 + below(24); k > 0; --k) tokens.push_back(token(below(16) / 8));
            switch (below(8)) {
                case 0:
                case 1:
                    (void)cache.acquire(tokens);
                    break;
                case 2:
                    (void)cache.take(tokens);
                    break;
                case 3:
                    (void)cache.evict();
                    break;
                default:
                    store(cache, tokens);
            }
        }
    };
    run(million);
    cache.clear();
    const HeapGrowth growth;
    const std::size_t baseline = cache.stats().index_bytes;
    for (int i = 0; i < 9; ++i) {
        run(million);
        CHECK(cache.stats().index_bytes <= 256 * 1024);
        CHECK(cache.audit().ok());
    }
    CHECK(operations == 10 * million);
    CHECK(cache.stats().evictions > million);
    CHECK(cache.stats().hits > million);
    cache.clear();
    // A byte lost in a thousand operations would be more than this at full size.
    CHECK(cache.stats().index_bytes <= baseline + 4096);
    CHECK(growth.bytes() <= 4096);
}
