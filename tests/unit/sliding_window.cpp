// SPDX-License-Identifier: MIT
// Leases whose window slides: the bound, what is recycled, anchors, and what is refused.
#include "kvstem/sliding_window.hpp"

#include <set>
#include <string>
#include <vector>

#include "catch.hpp"
#include "kvstem/radix_cache.hpp"

using namespace kvstem;

namespace {

using Cache = RadixCache<>;

std::vector<Token> tokens(std::size_t n, Token first = 1) {
    std::vector<Token> out(n);
    for (std::size_t i = 0; i < n; ++i) out[i] = first + static_cast<Token>(i);
    return out;
}

/// Checks that every row the next step reads has a page.
void require_window_held(const Cache::Lease& lease, std::size_t window, std::size_t page) {
    const std::size_t end = lease.written();
    const std::size_t begin = end > window - 1 ? end - (window - 1) : 0;
    for (std::size_t position = begin; position < end; ++position) {
        REQUIRE(lease.block_table()[position / page] != no_page);
    }
    std::set<PageId> named;
    for (const PageId page_id : lease.block_table()) {
        if (page_id != no_page) REQUIRE(named.insert(page_id).second);
    }
}

struct Shape {
    std::size_t page;
    SlidingWindow window;
};

}  // namespace

TEST_CASE("the bound is that of the positions that have to be held at any time", "[W1]") {
    // W = 5, P = 2: a row reads 4 earlier ones, and with its own slot 5 neighbours touch at most 3
    // pages.
    CHECK(SlidingWindow{.window_tokens = 5}.bound_pages(2) == 3);
    CHECK(SlidingWindow{.window_tokens = 1}.bound_pages(16) == 1);
    CHECK(SlidingWindow{.window_tokens = 17}.bound_pages(16) == 2);
    CHECK(SlidingWindow{.window_tokens = 18}.bound_pages(16) == 3);
    CHECK(SlidingWindow{.window_tokens = 5, .retained_tokens = 2, .interval_tokens = 3}.bound_pages(
              1) == 9);
    CHECK(SlidingWindow{.window_tokens = 5, .ahead_tokens = 4}.bound_pages(1) == 8);
    // An anchor keeps 4 positions before it until the cursor is 5 past it.
    CHECK(SlidingWindow{.window_tokens = 5}.anchored_bound_pages(1) == 9);
}

TEST_CASE("in a pool of exactly the bound an endless answer never runs dry", "[W1][W2]") {
    const std::size_t page = GENERATE(as<std::size_t>{}, 1, 2, 4, 16);
    const std::size_t window = GENERATE(as<std::size_t>{}, 1, 2, 5, 8, 17);
    const std::size_t interval = GENERATE(as<std::size_t>{}, 1, 4, 9);
    const std::size_t ahead = GENERATE(as<std::size_t>{}, 1, 3);
    const std::size_t prompt_tokens = GENERATE(as<std::size_t>{}, 0, 1, 7, 33);
    const bool anchors = GENERATE(false, true);
    const SlidingWindow slide{window, window % 3, interval, ahead};

    const std::size_t prompt_pages = (prompt_tokens + page - 1) / page;
    const std::size_t bound = anchors ? slide.anchored_bound_pages(page) : slide.bound_pages(page);
    Cache cache({.page_tokens = page}, PagePool(prompt_pages + bound));
    const auto prompt = tokens(prompt_tokens);
    auto [admission, lease] = cache.acquire_sliding(prompt, slide);
    REQUIRE(admission == Admission::granted);
    lease.wrote(prompt);
    lease.publish();
    lease.slide();
    for (std::size_t step = 0; step < 300; ++step) {
        if (anchors && step % 37 == 0) {
            REQUIRE(lease.anchor(lease.written()) == Admission::granted);
        }
        const auto more = tokens(1 + step % ahead);
        REQUIRE(lease.written() + more.size() <= lease.capacity());
        lease.wrote(more);
        lease.slide();
        require_window_held(lease, window, page);
    }
    CHECK(cache.audit().ok());
    lease.release();
    CHECK(cache.audit().ok());
    CHECK(cache.free_pages() + cache.cached_pages() == cache.pages().capacity_pages());
}

TEST_CASE("the bound is not larger than it has to be", "[W1]") {
    const std::size_t page = GENERATE(as<std::size_t>{}, 1, 2, 4);
    const std::size_t window = GENERATE(as<std::size_t>{}, 2, 5, 8);
    const SlidingWindow slide{.window_tokens = window};
    Cache cache({.page_tokens = page}, PagePool(100));
    const auto prompt = tokens(page);  // one page, published, so that none of it is recycled
    auto [admission, lease] = cache.acquire_sliding(prompt, slide);
    REQUIRE(admission == Admission::granted);
    lease.wrote(prompt);
    lease.publish();
    std::size_t most = 0;
    for (std::size_t step = 0; step < 100; ++step) {
        // Pages with rows that the step at this position reads or writes, beside the prompt's.
        const std::size_t end = lease.written();
        const std::size_t begin = end > window - 1 ? end - (window - 1) : 0;
        const std::size_t first = begin / page == 0 ? 1 : begin / page;
        most = std::max(most, end / page - first + 1);
        lease.wrote(tokens(1));
        lease.slide();
    }
    CHECK(most == slide.bound_pages(page));
}

TEST_CASE("adopted and published pages are not recycled", "[W3]") {
    Cache cache({.page_tokens = 2}, PagePool(40));
    const auto prompt = tokens(9);
    {
        auto first = cache.acquire(prompt);
        first.lease.wrote(prompt);
        first.lease.publish();
    }
    auto [admission, lease] = cache.acquire_sliding(prompt, {.window_tokens = 3});
    REQUIRE(admission == Admission::granted);
    REQUIRE(lease.adopted() == 8);
    const std::vector<PageId> adopted(lease.block_table().begin(), lease.block_table().begin() + 4);
    lease.wrote(std::span(prompt).subspan(8));
    for (int i = 0; i < 50; ++i) {
        lease.wrote(tokens(1));
        lease.slide();
    }
    for (std::size_t i = 0; i < 4; ++i) {
        CHECK(lease.block_table()[i] == adopted[i]);
        CHECK(cache.refs(adopted[i]) == 2);
    }
    for (std::size_t i = 4; i < lease.block_table().size(); ++i) {
        for (const PageId page : adopted) CHECK(lease.block_table()[i] != page);
    }
    CHECK(cache.peek(prompt).cached_tokens == 8);
    CHECK(cache.audit().ok());
}

TEST_CASE("a lease whose window has slid publishes nothing", "[P4]") {
    Cache cache({.page_tokens = 2}, PagePool(40));
    auto [admission, lease] = cache.acquire_sliding(tokens(6), {.window_tokens = 2});
    REQUIRE(admission == Admission::granted);
    lease.wrote(tokens(4));
    CHECK(lease.publish() == 2);  // not slid yet
    lease.wrote(tokens(2, 5));
    lease.slide();
    CHECK(lease.kept_from() == 5);
    CHECK(lease.block_table()[2] != no_page);  // position 5 is in it
    lease.wrote(tokens(3, 7));
    CHECK(lease.slide() == 2);
    CHECK(lease.block_table()[2] == no_page);
    CHECK(lease.publish() == 0);
    CHECK(cache.cached_pages() == 2);
    CHECK(cache.peek(tokens(10)).cached_tokens == 4);
}

TEST_CASE("what a slid lease is told to publish is written and not published", "[P4]") {
    Cache cache({.page_tokens = 2}, PagePool(40));
    auto [admission, lease] = cache.acquire_sliding(tokens(12), {.window_tokens = 3});
    REQUIRE(admission == Admission::granted);
    lease.wrote(tokens(12));
    REQUIRE(lease.slide() > 0);
    CHECK(lease.publish(tokens(2, 100)) == 0);
    CHECK(lease.written() == 14);
    CHECK(cache.cached_pages() == 0);
    CHECK(cache.audit().ok());
}

TEST_CASE("the slide stops short of an anchor until the cursor is a window past it", "[W4]") {
    Cache cache({.page_tokens = 1}, PagePool(60));
    auto [admission, lease] = cache.acquire_sliding(tokens(10), {.window_tokens = 4});
    REQUIRE(admission == Admission::granted);
    lease.wrote(tokens(10));
    REQUIRE(lease.anchor(10) == Admission::granted);
    for (std::size_t cursor = 10; cursor < 30; ++cursor) {
        lease.slide();
        // A request that rejoins at 10 needs the rows of positions 7, 8 and 9.
        if (cursor < 14) {
            CHECK(lease.kept_from() == 7);
            for (std::size_t p = 7; p < 10; ++p) CHECK(lease.block_table()[p] != no_page);
        } else {
            CHECK(lease.kept_from() == cursor - 3);
            CHECK(lease.block_table()[9] == no_page);
        }
        lease.wrote(tokens(1));
    }
    CHECK(cache.audit().ok());
}

TEST_CASE("an anchor is refused where its window is gone, or not written yet", "[W4]") {
    Cache cache({.page_tokens = 1}, PagePool(60));
    auto [admission, lease] = cache.acquire_sliding(tokens(10), {.window_tokens = 4});
    REQUIRE(admission == Admission::granted);
    lease.wrote(tokens(10));
    lease.slide();
    CHECK_THROWS_AS((void)lease.anchor(9), InvalidArgument);
    CHECK_THROWS_AS((void)lease.anchor(11), InvalidArgument);
    CHECK(lease.anchor(10) == Admission::granted);
    auto plain = cache.acquire(tokens(3, 50));
    CHECK_THROWS_AS((void)plain.lease.anchor(0), InvalidArgument);
    CHECK_THROWS_AS(plain.lease.slide(), InvalidArgument);
}

TEST_CASE("an anchor that the pool has no pages for changes nothing", "[W4][L4]") {
    const SlidingWindow window{.window_tokens = 4};
    Cache cache({.page_tokens = 1}, PagePool(5 + window.bound_pages(1)));
    auto [admission, lease] = cache.acquire_sliding(tokens(5), window);
    REQUIRE(admission == Admission::granted);
    lease.wrote(tokens(5));
    CHECK(lease.anchor(5) == Admission::never_fits);
    lease.slide();
    CHECK(lease.kept_from() == 2);
}

TEST_CASE("the holes of a long answer are no pages: an anchor still fits", "[W4][L4][E4]") {
    Cache cache({.page_tokens = 4}, PagePool(32));
    auto [admission, lease] = cache.acquire_sliding(tokens(4), {.window_tokens = 8});
    REQUIRE(admission == Admission::granted);
    lease.wrote(tokens(4));
    for (int i = 0; i < 200; ++i) {
        lease.wrote(tokens(1));
        lease.slide();
    }
    REQUIRE(lease.block_table().size() > 32);
    CHECK(lease.anchor(lease.written()) == Admission::granted);
    CHECK(lease.grow_to(lease.capacity() + 4) == Admission::granted);
    CHECK(lease.grow_to(lease.capacity() + 4 * 32) == Admission::never_fits);
    CHECK(cache.audit().ok());
}

TEST_CASE("of a request that slides only the prompt is published, so that it never runs dry",
          "[W1][W2][P5]") {
    const SlidingWindow slide{.window_tokens = 8, .interval_tokens = 3};
    Cache cache({.page_tokens = 4}, PagePool(3 + slide.bound_pages(4)));
    const auto prompt = tokens(10);
    auto [admission, lease] = cache.acquire_sliding(prompt, slide);
    REQUIRE(admission == Admission::granted);
    CHECK(lease.publish(prompt) == 2);
    for (int i = 0; i < 200; ++i) {
        REQUIRE(lease.written() < lease.capacity());
        lease.wrote(tokens(1));
        CHECK(lease.publish() == 0);
        lease.slide();
    }
    CHECK(cache.cached_pages() == 2);
    CHECK(cache.audit().ok());
}

TEST_CASE("admission reserves by the bound", "[W1][E4]") {
    const SlidingWindow window{.window_tokens = 8};  // 2 rows a page: 5 pages
    REQUIRE(window.bound_pages(2) == 5);
    Cache cache({.page_tokens = 2}, PagePool(10));
    CHECK(cache.acquire_sliding(tokens(11), window).admission == Admission::never_fits);
    auto first = cache.acquire_sliding(tokens(4), window);
    CHECK(first.admission == Admission::granted);
    CHECK(cache.free_pages() == 3);
    CHECK(cache.acquire_sliding(tokens(1, 9), window).admission == Admission::exhausted);
    first.lease.release();
    CHECK(cache.acquire_sliding(tokens(1, 9), window).admission == Admission::granted);
}

TEST_CASE("a draft that is rejected is cut back without giving pages away", "[L3][W2]") {
    Cache cache({.page_tokens = 2}, PagePool(40));
    const SlidingWindow window{.window_tokens = 4, .retained_tokens = 3, .ahead_tokens = 3};
    auto [admission, lease] = cache.acquire_sliding(tokens(5), window);
    REQUIRE(admission == Admission::granted);
    lease.wrote(tokens(5));
    const auto no_copy = [](PageId, PageId, std::size_t) { FAIL("nothing is copied"); };
    for (int i = 0; i < 60; ++i) {
        const std::size_t before = lease.written();
        lease.wrote(tokens(3));
        lease.slide();
        REQUIRE(lease.cut_back(before + 1, no_copy) == Admission::granted);
        REQUIRE(lease.written() == before + 1);
        REQUIRE(lease.capacity() >= lease.written() + 3);
        require_window_held(lease, 4, 2);
        REQUIRE(cache.audit().ok());
    }
    CHECK_THROWS_AS((void)lease.cut_back(lease.kept_from() + 2, no_copy), InvalidArgument);
}

TEST_CASE("a sliding lease is not cut back behind what it has published", "[L3][W3]") {
    Cache cache({.page_tokens = 2}, PagePool(40));
    auto [admission, lease] = cache.acquire_sliding(tokens(5), {.window_tokens = 9});
    REQUIRE(admission == Admission::granted);
    lease.wrote(tokens(5));
    REQUIRE(lease.publish() == 2);
    const auto no_copy = [](PageId, PageId, std::size_t) { FAIL("nothing is copied"); };
    CHECK_THROWS_AS((void)lease.cut_back(3, no_copy), InvalidArgument);
    CHECK(lease.written() == 5);
    CHECK(lease.cut_back(4, no_copy) == Admission::granted);
    CHECK(lease.written() == 4);
    CHECK(cache.audit().ok());
}

TEST_CASE("a lease that slides does not fork", "[L2]") {
    Cache cache({.page_tokens = 2}, PagePool(40));
    auto [admission, lease] = cache.acquire_sliding(tokens(5), {.window_tokens = 4});
    REQUIRE(admission == Admission::granted);
    CHECK_THROWS_AS((void)lease.fork([](PageId, PageId, std::size_t) {}), InvalidArgument);
    CHECK(cache.audit().ok());
}

TEST_CASE("a window of nothing, and one beyond all bounds, are refused", "[R3]") {
    Cache cache({.page_tokens = 2}, PagePool(40));
    CHECK_THROWS_AS((void)cache.acquire_sliding(tokens(5), {}), InvalidArgument);
    CHECK_THROWS_AS(
        (void)cache.acquire_sliding(tokens(5), {.window_tokens = 3, .interval_tokens = 0}),
        InvalidArgument);
    CHECK_THROWS_AS((void)cache.acquire_sliding(tokens(5), {.window_tokens = 3, .ahead_tokens = 0}),
                    InvalidArgument);
    const std::size_t huge = ~std::size_t{0};
    CHECK(cache.acquire_sliding(tokens(5), {.window_tokens = huge}).admission ==
          Admission::never_fits);
    CHECK(
        cache.acquire_sliding(tokens(5), {.window_tokens = 3, .retained_tokens = huge}).admission ==
        Admission::never_fits);
    CHECK(cache.free_pages() == 40);
    CHECK(cache.stats().leases == 0);
    // Sums that would wrap to something small.
    Cache wide({.page_tokens = huge >> 24}, PagePool(64));
    const SlidingWindow wraps{.window_tokens = huge / 2 + 2, .retained_tokens = huge / 2 + 1};
    CHECK(wide.acquire_sliding(tokens(5), wraps).admission == Admission::never_fits);
    CHECK(wraps.anchored_bound_pages(1) > huge / 4);
}

TEST_CASE("a model that mixes full and windowed layers is told why it may not slide", "[W1]") {
    Cache cache({.page_tokens = 2}, PagePool(40));
    std::string message;
    try {
        (void)cache.acquire_sliding(tokens(5), {.window_tokens = 0});
    } catch (const InvalidArgument& error) {
        message = error.what();
    }
    CHECK_THAT(message, ContainsSubstring("mixes full and windowed layers needs every page"));
}
