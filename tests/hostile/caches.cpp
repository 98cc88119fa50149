// SPDX-License-Identifier: MIT
// Callers' arguments at their limits: sizes whose products and sums would wrap, tokens at the ends
// of their type, handles that are stale. A named refusal or a clean answer.

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "kvstem/ghost.hpp"
#include "kvstem/prefix_cache.hpp"
#include "kvstem/prefix_cached_engine.hpp"
#include "kvstem/radix_cache.hpp"
#include "kvstem/reference/kv.hpp"
#include "kvstem/reference/paged_kv.hpp"
#include "kvstem/shared_radix_cache.hpp"
#include "kvstem/window.hpp"
#include "support/reference.hpp"
#include "support/token_rows.hpp"
#include "support/toy_engines.hpp"

using namespace kvstem_test;
using kvstem::InvalidArgument;
using kvstem::StaleHandle;
using kvstem::Token;
using support::refusal;

namespace {

using Cache = kvstem::RadixCache<>;

constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
constexpr std::array<Token, 6> extremes{INT32_MIN, INT32_MIN + 1, -1, 0, INT32_MAX - 1, INT32_MAX};

/// Claims any number of bytes.
class Claiming {
  public:
    Claiming(std::size_t length, std::size_t bytes) : length_(length), bytes_(bytes) {}
    [[nodiscard]] std::size_t length() const noexcept { return length_; }
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
    void truncate(std::size_t n) { length_ = n; }

  private:
    std::size_t length_;
    std::size_t bytes_;
};

}  // namespace

// --- Sizes ---------------------------------------------------------------------------------------

TEST_CASE("pages of more bytes than can be addressed are refused with their size",
          "[hostile][R3]") {
    for (const std::size_t page_tokens : {std::size_t{1} << 62u, most / 8, most / 16}) {
        const std::string message =
            refusal<InvalidArgument>([&] { Cache({.page_tokens = page_tokens}, PagePool(1)); });
        CHECK_THAT(message, ContainsSubstring("page of " + std::to_string(page_tokens)));
    }
}

TEST_CASE("pages times tokens that exceed 2^63 positions are refused with both numbers",
          "[hostile][R3]") {
    for (const std::size_t page_tokens : {most / 64, most / 100'003, most >> 26u}) {
        const std::size_t pages = (most >> 1u) / page_tokens + 1;
        INFO(pages << " pages of " << page_tokens);
        const std::string message =
            refusal<InvalidArgument>([&] { Cache({.page_tokens = page_tokens}, PagePool(pages)); });
        CHECK_THAT(message, ContainsSubstring(std::to_string(page_tokens)));
        CHECK_THAT(message, ContainsSubstring(std::to_string(pages) + " pages"));
    }
    CHECK_THROWS_AS(kvstem::SharedRadixCache<>({.page_tokens = 0}, PagePool(4)), InvalidArgument);
    CHECK_THROWS_AS(kvstem::SharedRadixCache<>({.page_tokens = most / 16}, PagePool(1 << 10)),
                    InvalidArgument);
}

TEST_CASE("a page larger than every prompt holds one, and is never published",
          "[hostile][R3][M6]") {
    const std::size_t page_tokens = std::size_t{1} << 40u;
    Cache cache({.page_tokens = page_tokens}, PagePool(8));
    const Tokens prompt = counted(100);
    auto [admission, lease] = cache.acquire(prompt);
    REQUIRE(admission == Admission::granted);
    CHECK(lease.capacity() == page_tokens);
    lease.wrote(prompt);
    CHECK(lease.publish() == 0);
    CHECK(lease.grow_to(8 * page_tokens) == Admission::granted);
    CHECK(lease.capacity() == 8 * page_tokens);
    CHECK(lease.grow_to(8 * page_tokens + 1) == Admission::never_fits);
    for (const std::size_t positions : {most, most - 1, most / 2, most - page_tokens}) {
        INFO(positions);
        CHECK(lease.grow_to(positions) == Admission::never_fits);
    }
    CHECK_THROWS_WITH(lease.cut_back(most, [](PageId, PageId, std::size_t) {}),
                      ContainsSubstring(std::to_string(most)));
    CHECK(lease.written() == 100);
    CHECK(cache.audit().ok());
}

TEST_CASE("counts at the limit of size_t evict and grow what there is", "[hostile][R3]") {
    const std::size_t page_tokens = GENERATE(as<std::size_t>{}, 1, 3, 16);
    Cache cache({.page_tokens = page_tokens}, PagePool(10));
    (void)publish_prompt(cache, counted(5 * page_tokens));
    {
        auto acquired = cache.acquire(counted(page_tokens));
        REQUIRE(acquired);
        for (const std::size_t positions : {most, most - 1, most / 2 + 1, most - page_tokens + 1}) {
            CHECK(acquired.lease.grow_to(positions) == Admission::never_fits);
        }
        CHECK(cache.stats().never_fits == 4);
        CHECK(cache.cached_pages() == 5);
    }
    CHECK(cache.evict(most) == 5);
    CHECK(cache.free_pages() == 10);
    CHECK(cache.audit().ok());
}

TEST_CASE("windows at every limit are refused or bounded, and never wrap to a small bound",
          "[hostile][R3][W1]") {
    const std::array<std::size_t, 7> sizes{1, 2, 1000, most / 2, most / 2 + 1, most - 1, most};
    Cache cache({.page_tokens = 4}, PagePool(20));
    for (const std::size_t window : sizes) {
        for (const std::size_t retained : sizes) {
            for (const std::size_t interval : sizes) {
                const kvstem::SlidingWindow slide{window, retained, interval, 2};
                const bool is_small = window <= 2 && retained <= 2 && interval <= 2;
                const auto acquired = cache.acquire_sliding(counted(3), slide);
                CHECK(acquired.admission ==
                      (is_small ? Admission::granted : Admission::never_fits));
                CHECK(slide.bound_pages(4) <= slide.anchored_bound_pages(4));
            }
        }
    }
    CHECK(kvstem::first_position_in_window(most, most) == 1);
    CHECK(kvstem::longest_window_cut(0, most, most, most) == most);
    CHECK(kvstem::longest_window_cut(2, most, most, most) == 0);
    CHECK(cache.free_pages() == 20);
}

TEST_CASE("snapshots whose bytes sum up beyond size_t take each other's place",
          "[hostile][S7][R3]") {
    kvstem::PrefixCache<Claiming> cache;
    const auto store = [&](Token token, std::size_t bytes) {
        return cache.store(Tokens{token, token}, Claiming(2, bytes));
    };
    CHECK(store(1, most / 2) == kvstem::StoreOutcome::stored);
    CHECK(store(2, most / 2) == kvstem::StoreOutcome::stored);
    CHECK(cache.size() == 1);  // with their tokens the two exceed what can be counted
    CHECK(store(3, most) == kvstem::StoreOutcome::stored);
    CHECK(cache.size() == 1);
    CHECK(cache.stats().bytes == most);
    CHECK(cache.peek(Tokens{3, 3}).tokens == 2);
    CHECK(store(3, 1) == kvstem::StoreOutcome::replaced);
    CHECK(cache.stats().bytes == 1 + 2 * sizeof(Token));
    CHECK(cache.audit().ok());
    kvstem::PrefixCache<Claiming> bounded({.max_entries = most, .max_bytes = most - 1});
    CHECK(bounded.store(Tokens{1}, Claiming(1, most)) == kvstem::StoreOutcome::too_large);
    CHECK_THROWS_WITH(bounded.store(Tokens{1}, Claiming(most, 1)),
                      ContainsSubstring(std::to_string(most)));
    CHECK(bounded.size() == 0);
}

TEST_CASE("KV shapes whose products wrap are refused", "[hostile][R3]") {
    using namespace kvstem::reference;
    const std::size_t half = std::size_t{1} << 63u;
    for (const KvShape shape : {KvShape{half, 2}, KvShape{2, half}, KvShape{most, most},
                                KvShape{std::size_t{1} << 33u, std::size_t{1} << 33u}}) {
        INFO(shape.n_layers << " layers, rows of " << shape.row_size);
        CHECK_THROWS_AS(PagedKvStore(shape, 1, 1), InvalidArgument);
        CHECK_THROWS_AS(PagedKvStore(shape, 1 << 20, 1 << 20), InvalidArgument);
    }
    CHECK_THROWS_AS(PagedKvStore(KvShape{1, 1}, 1u << 31u, most / 4), InvalidArgument);
}

TEST_CASE("an engine of impossible sizes is refused by name", "[hostile][R3]") {
    ToyPagedEngine pages(4, 4);
    pages.page_size = most / 16;
    pages.pages = 1 << 20;
    CHECK_THROWS_AS(kvstem::PrefixCachedEngine(pages), InvalidArgument);
    ToyRowEngine rows;
    using Options = kvstem::PrefixCachedEngine<ToyRowEngine>::Options;
    for (const std::size_t block_tokens : {most, most / 8, most / 16 + 1, most / 2}) {
        INFO(block_tokens);
        CHECK_THROWS_AS(kvstem::PrefixCachedEngine(
                            rows, Options{.block_tokens = block_tokens, .max_bytes = most}),
                        InvalidArgument);
    }
    ToyRowEngine small;
    kvstem::PrefixCachedEngine cached(
        small, Options{.block_tokens = 4, .max_blocks = 100, .max_bytes = most});
    const Tokens prompt{1, 2, 3};
    // As many new tokens as can be counted: the context ends it.
    small.context = 20;
    const auto result = cached.generate(prompt, {.max_new_tokens = most});
    CHECK(result.finish == kvstem::FinishReason::context_full);
    CHECK(result.tokens.size() == 18);
}

TEST_CASE("ghosts of impossible sizes are refused or counted", "[hostile][R3]") {
    for (const kvstem::GhostOptions options :
         {kvstem::GhostOptions{.capacity_pages = most, .page_tokens = 1, .ghosts = 64},
          kvstem::GhostOptions{.capacity_pages = 4, .page_tokens = most, .ghosts = 64},
          kvstem::GhostOptions{.capacity_pages = most, .page_tokens = most, .ghosts = 64}}) {
        try {
            kvstem::GhostCache ghosts(options);
            ghosts.observe(counted(40));
            ghosts.observe(counted(40));
            CHECK(ghosts.bytes() < 1 << 20);
        } catch (const InvalidArgument& error) {
            CHECK(std::string(error.what()).find_first_of("0123456789") != std::string::npos);
        }
    }
}

// --- Tokens and namespaces -----------------------------------------------------------------------

TEST_CASE("tokens at the ends of their type are tokens like any other", "[hostile][M1]") {
    Cache pages({.page_tokens = 2}, PagePool(200));
    kvstem::PrefixCache<CountingKv> snapshots;
    std::size_t stored = 0;
    for (const Token a : extremes) {
        for (const Token b : extremes) {
            const Tokens tokens{a, b};
            (void)publish_prompt(pages, tokens);
            (void)snapshots.store(tokens, CountingKv(tokens));
            ++stored;
        }
    }
    CHECK(pages.cached_pages() == stored);
    CHECK(snapshots.size() == stored);
    for (const Token a : extremes) {
        for (const Token b : extremes) {
            CHECK(pages.peek(Tokens{a, b}).cached_tokens == 2);
            CHECK(pages.peek(Tokens{a, 5}).cached_tokens == 0);
            const auto hit = snapshots.acquire(Tokens{a, b});
            REQUIRE(hit);
            CHECK(hit->kv.rows() == Tokens{a, b});
        }
    }
    CHECK(pages.audit().ok());
    CHECK(snapshots.audit().ok());
}

TEST_CASE("an engine is never asked for a token outside its vocabulary", "[hostile]") {
    ToyRowEngine engine;
    kvstem::PrefixCachedEngine cached(engine);
    for (const Token token : {INT32_MIN, -1, static_cast<Token>(engine.vocabulary), INT32_MAX}) {
        const std::string message = refusal<InvalidArgument>(
            [&] { (void)cached.generate(Tokens{1, token}, {.max_new_tokens = 1}); });
        CHECK_THAT(message, ContainsSubstring("token " + std::to_string(token)));
    }
    CHECK(engine.computed == 0);
    CHECK(cached.stats().queried_tokens == 0);
    CHECK(cached.peek(Tokens{INT32_MIN, INT32_MAX}) == 0);
}

TEST_CASE("namespaces of any bytes and any length keep apart", "[hostile][M7]") {
    const std::string zero(1, '\0');
    const std::string two_zeros(2, '\0');
    const std::string long_name(1 << 20, 'n');
    const std::string longer_name = long_name + 'n';
    const std::vector<Namespace> names{{.salt = zero},
                                       {.salt = two_zeros},
                                       {.adapter = zero, .version = zero},
                                       {.salt = ""},
                                       {.salt = "\xFF\xFE"},
                                       {.adapter = long_name},
                                       {.adapter = longer_name},
                                       {.version = long_name}};
    Cache cache({.page_tokens = 1}, PagePool(names.size()));
    for (const Namespace& name : names) {
        CHECK(cache.peek(Tokens{7}, name).cached_tokens == 0);
        (void)publish_prompt(cache, {7}, name);
    }
    CHECK(cache.cached_pages() == names.size());
    for (const Namespace& name : names) CHECK(cache.drop(name) == 1);
    CHECK(cache.stats().namespaces == 0);
}

// --- Handles -------------------------------------------------------------------------------------

// A lease knows its cache: there is no call that takes a lease or a page id to give back, so a handle
// of another cache cannot be passed at all.

TEST_CASE("two caches over equal ids do not mix up their leases", "[hostile][L1]") {
    Cache one({.page_tokens = 1}, PagePool(4));
    Cache other({.page_tokens = 1}, PagePool(4));
    auto a = std::move(one.acquire(counted(3)).lease);
    auto b = std::move(other.acquire(counted(2)).lease);
    std::swap(a, b);
    a.wrote(counted(2));
    b.wrote(counted(3));
    CHECK(a.publish() == 2);
    CHECK(b.publish() == 3);
    CHECK(one.cached_pages() == 3);
    CHECK(other.cached_pages() == 2);
    a = std::move(b);  // gives back what it had, to the cache it was from
    CHECK(other.stats().leases == 0);
    CHECK(one.stats().leases == 1);
    CHECK(one.audit().ok());
    CHECK(other.audit().ok());
}

TEST_CASE("a lease refuses everything once its cache is gone, also what a window offers",
          "[hostile][L1]") {
    Cache::Lease lease;
    Cache::Lease sliding;
    {
        Cache cache({.page_tokens = 1}, PagePool(40));
        lease = std::move(cache.acquire(counted(3)).lease);
        sliding = std::move(cache.acquire_sliding(counted(3), {.window_tokens = 2}).lease);
        REQUIRE_FALSE(sliding.empty());
    }
    TokenRows rows(1, 1);
    for (Cache::Lease* gone : {&lease, &sliding}) {
        CHECK(gone->empty());
        CHECK_THROWS_AS(gone->slide(), StaleHandle);
        CHECK_THROWS_AS(gone->anchor(0), StaleHandle);
        CHECK_THROWS_AS(gone->kept_from(), StaleHandle);
        CHECK_THROWS_AS(gone->publish(Tokens{1}), StaleHandle);
        CHECK_THROWS_AS(gone->fork(rows), StaleHandle);
        CHECK_THROWS_AS(gone->cut_back(0, rows), StaleHandle);
        CHECK_THROWS_AS(gone->block_table(), StaleHandle);
        gone->release();
        gone->release();
    }
}

TEST_CASE("after a clear a sliding lease goes on, and publishes nothing", "[hostile][L5][P4]") {
    Cache cache({.page_tokens = 2}, PagePool(40));
    auto [admission, lease] = cache.acquire_sliding(counted(9), {.window_tokens = 3});
    REQUIRE(admission == Admission::granted);
    lease.wrote(counted(5));
    CHECK(lease.publish() == 2);
    cache.clear();
    lease.wrote(counted(4));
    CHECK(lease.publish() == 0);
    for (int i = 0; i < 20; ++i) {
        lease.slide();
        lease.wrote(Tokens{1});
    }
    TokenRows rows(40, 2);
    CHECK_THROWS_AS(lease.cut_back(0, rows), InvalidArgument);
    CHECK(cache.cached_pages() == 0);
    CHECK(cache.audit().ok());
    lease.release();
    CHECK(cache.free_pages() == 40);
}

TEST_CASE("a page id that the pool does not have is refused everywhere", "[hostile][G2]") {
    Cache cache({.page_tokens = 1}, PagePool(3));
    for (const std::uint32_t id : {3u, 64u, 4096u, 0x7FFF'FFFFu, 0xFFFF'FFFFu}) {
        CHECK_THROWS_WITH(cache.refs(PageId{id}), ContainsSubstring(std::to_string(id)));
        PagePool pool(3);
        CHECK_THROWS_AS(pool.retain(PageId{id}), InvalidArgument);
        CHECK_THROWS_AS(pool.release(PageId{id}), InvalidArgument);
        const std::array<PageId, 2> pages{*pool.acquire(), PageId{id}};
        CHECK_THROWS_AS(pool.release(std::span<const PageId>(pages)), InvalidArgument);
        CHECK(pool.refs(pages[0]) == 1);
        CHECK(pool.free_pages() == 2);
    }
}
