// SPDX-License-Identifier: MIT
// PagePool, and the counters and bit sets it and RadixCache are made of.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <new>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "kvstem/page_pool.hpp"
#include "support/fail_allocation.hpp"
#include "support/test_scale.hpp"
#include "support/token_rows.hpp"

using kvstem::InvalidArgument;
using kvstem::detail::CountTable;
using kvstem::detail::PageBits;
using namespace kvstem_test;

namespace {

Ids take(PagePool& pool, std::size_t n) {
    Ids pages(n);
    REQUIRE(pool.acquire(std::span(pages)));
    return pages;
}

std::vector<std::uint32_t> owners(const PagePool& pool) {
    std::vector<std::uint32_t> refs;
    for (std::uint32_t i = 0; i < pool.capacity_pages(); ++i) refs.push_back(pool.refs(PageId{i}));
    return refs;
}

}  // namespace

TEST_CASE("a page of the pool is free or held by a counted number of owners", "[G1]") {
    PagePool pool(3);
    const PageId page = pool.acquire().value();
    CHECK(pool.refs(page) == 1);
    pool.retain(page);
    pool.retain(page);
    CHECK(pool.refs(page) == 3);
    CHECK_FALSE(pool.release(page));
    CHECK_FALSE(pool.release(page));
    CHECK(pool.refs(page) == 1);
    CHECK(pool.free_pages() == 2);
    CHECK(pool.release(page));
    CHECK(pool.refs(page) == 0);
    CHECK(pool.free_pages() == 3);
}

TEST_CASE("taking several pages is all or nothing", "[G2]") {
    PagePool pool(5);
    Ids two = take(pool, 2);
    Ids four(4, kvstem::no_page);
    CHECK_FALSE(pool.acquire(std::span(four)));
    CHECK(four == Ids(4, kvstem::no_page));
    CHECK(pool.free_pages() == 3);
    CHECK(take(pool, 3).size() == 3);
    CHECK_FALSE(pool.acquire().has_value());
    CHECK(pool.acquire(std::span<PageId>()));
}

TEST_CASE("free pages are handed out in ascending order, going round from the last large release",
          "[G2]") {
    const std::size_t capacity = 64 * 64 + 130;
    PagePool pool(capacity);
    Ids all = take(pool, capacity);
    for (std::uint32_t i = 0; i < capacity; ++i) REQUIRE(all[i] == PageId{i});
    pool.release(ids({4097, 70, 3, 4096}));
    CHECK(take(pool, 4) == ids({4096, 4097, 3, 70}));
}

TEST_CASE("the search for free pages goes round a pool of any size", "[G2]") {
    const std::size_t capacity = 2 * 262'144 + 70;  // three words of the summary's summary
    PagePool pool(capacity);
    const Ids all = take(pool, capacity);
    const Ids far = ids({5, 4095, 4096, 262'143, 262'144, 524'288, 524'357});
    for (int round = 0; round < 3; ++round) {
        for (const PageId page : far) pool.release(page);
        pool.release(ids({400'000, 400'001}));  // the largest release: begin here, then go round
        CHECK(take(pool, 9) ==
              ids({400'000, 400'001, 524'288, 524'357, 5, 4095, 4096, 262'143, 262'144}));
        CHECK_FALSE(pool.acquire().has_value());
    }
}

TEST_CASE("pages that were given back together are taken together, whatever else is free", "[G2]") {
    PagePool pool(4096);
    const Ids all = take(pool, 4096);
    const auto part = [&all](std::size_t from, std::size_t n) {
        return std::span<const PageId>(all).subspan(from, n);
    };
    for (std::uint32_t i = 0; i < 1000; i += 7) pool.release(PageId{i});  // small holes everywhere
    pool.release(part(2000, 100));
    pool.release(part(3000, 20));  // smaller, and later: does not decide
    const Ids taken = take(pool, 100);
    CHECK(std::equal(taken.begin(), taken.end(), part(2000, 100).begin()));
    CHECK(take(pool, 20).front() == PageId{3000});  // it goes on from there
}

TEST_CASE("the largest release decides also while some page has several owners", "[G2]") {
    PagePool pool(256);
    const Ids all = take(pool, 256);
    pool.retain(all[255]);
    pool.release(all[0]);
    pool.release(std::span<const PageId>(all).subspan(64, 100));
    CHECK(pool.acquire() == PageId{64});
}

TEST_CASE("a release that fails does not decide where the next pages come from", "[G2][R1]") {
    PagePool pool(192);
    const Ids all = take(pool, 192);
    CHECK_THROWS_AS(pool.release(ids({150, 999})), InvalidArgument);
    pool.release(all[10]);
    pool.release(all[160]);
    CHECK(pool.acquire() == PageId{10});
}

TEST_CASE("giving back a page that nobody holds is an error that changes nothing", "[G2]") {
    PagePool pool(4);
    const PageId held = pool.acquire().value();
    CHECK_THROWS_AS(pool.release(PageId{1}), InvalidArgument);
    CHECK_THROWS_AS(pool.release(PageId{4}), InvalidArgument);
    CHECK_THROWS_AS(pool.retain(PageId{1}), InvalidArgument);
    CHECK_THROWS_AS(pool.retain(kvstem::no_page), InvalidArgument);
    CHECK_THROWS_AS(pool.refs(PageId{4}), InvalidArgument);
    CHECK(pool.release(held));
    CHECK_THROWS_AS(pool.release(held), InvalidArgument);
    CHECK(pool.free_pages() == 4);
    CHECK_THROWS_WITH(pool.release(PageId{9}), ContainsSubstring("page 9"));
}

TEST_CASE("giving back a span with one page too much gives back none of it", "[G2]") {
    PagePool pool(200);
    take(pool, 140);
    pool.release(ids({7}));
    const bool some_with_several_owners = GENERATE(false, true);
    if (some_with_several_owners) {
        for (std::uint32_t i = 60; i < 70; ++i) pool.retain(PageId{i});
        pool.retain(PageId{60});
    }
    const auto before = owners(pool);
    const std::size_t free = pool.free_pages();
    Ids span;
    for (std::uint32_t i = 10; i < 130; ++i) span.push_back(PageId{i});
    for (const Ids& wrong : {ids({7}), ids({140}), ids({200}), ids({10}), ids({0xFFFF'FFFF})}) {
        Ids pages = span;
        pages.insert(pages.end(), wrong.begin(), wrong.end());
        CHECK_THROWS_AS(pool.release(std::span<const PageId>(pages)), InvalidArgument);
        CHECK(owners(pool) == before);
        pages = wrong;
        pages.insert(pages.end(), span.begin(), span.end());
        if (wrong != ids({10})) pages.push_back(PageId{10});
        CHECK_THROWS_AS(pool.release(std::span<const PageId>(pages)), InvalidArgument);
        CHECK(owners(pool) == before);
        CHECK(pool.free_pages() == free);
    }
    pool.release(std::span<const PageId>(span));
    CHECK(pool.free_pages() >= free + 110);
}

TEST_CASE("undoing a release of too much needs no memory", "[G2][R1]") {
    // Eight counters fill a table of sixteen places to the limit at which it grows.
    PagePool pool(16);
    take(pool, 12);
    for (std::uint32_t i = 0; i < 8; ++i) {
        pool.retain(PageId{i});
        pool.retain(PageId{i});
    }
    const auto before = owners(pool);
    Ids pages = ids({0, 1, 2, 3, 4, 5, 6, 7, 15});
    {
        const FailingAllocation failing(1);
        CHECK_THROWS_AS(pool.release(std::span<const PageId>(pages)), InvalidArgument);
        CHECK_FALSE(failing.fired());
    }
    CHECK(owners(pool) == before);
}

TEST_CASE("retaining without memory changes nothing", "[R1]") {
    PagePool pool(4);
    const PageId page = pool.acquire().value();
    {
        const FailingAllocation failing(1);
        CHECK_THROWS_AS(pool.retain(page), std::bad_alloc);
        CHECK(failing.fired());
    }
    CHECK(pool.refs(page) == 1);
    CHECK(pool.release(page));
}

TEST_CASE("a pool of no pages grants nothing but nothing", "[G2]") {
    PagePool pool(0);
    CHECK_FALSE(pool.acquire().has_value());
    CHECK(pool.acquire(std::span<PageId>()));
    CHECK(pool.free_pages() == 0);
}

TEST_CASE("a pool of more than 2^32 - 1 pages is refused", "[R3]") {
    // Where std::size_t has 32 bits there is no such number.
    const std::uint64_t too_many = 0x1'0000'0000;
    if (static_cast<std::size_t>(too_many) != too_many) {
        SUCCEED();
        return;
    }
    CHECK_THROWS_AS(PagePool(static_cast<std::size_t>(too_many)), InvalidArgument);
}

TEST_CASE("free and held pages add up to the capacity after any operation", "[G1][G2][G3]") {
    const unsigned seed = GENERATE(range(1u, 13u));
    std::mt19937 random(seed);
    const auto below = [&](std::size_t n) { return static_cast<std::uint32_t>(random() % n); };
    const std::size_t capacity = 1 + below(300);
    PagePool pool(capacity);
    std::vector<std::uint32_t> refs(capacity);
    for (int step = 0; step < 2000; ++step) {
        const auto free = static_cast<std::size_t>(std::count(refs.begin(), refs.end(), 0u));
        switch (below(3)) {
            case 0: {
                Ids pages(below(capacity / 4 + 2));
                REQUIRE(pool.acquire(std::span(pages)) == (pages.size() <= free));
                if (pages.size() > free) break;
                for (const PageId page : pages) REQUIRE(++refs[index_of(page)] == 1);
                break;
            }
            case 1: {
                const PageId page{below(capacity)};
                if (refs[index_of(page)] == 0) break;
                pool.retain(page);
                ++refs[index_of(page)];
                break;
            }
            default: {
                Ids pages;
                const std::uint32_t first = below(capacity);
                auto after = refs;
                bool valid = true;
                for (std::uint32_t n = below(100); n > 0; --n) {
                    std::uint32_t id = below(4) == 0 ? below(capacity) : first + n;
                    if (id >= capacity) id = first;
                    if (after[id] == 0 && below(40) != 0) continue;
                    valid = valid && after[id] != 0;
                    pages.push_back(PageId{id});
                    after[id] -= after[id] != 0 ? 1 : 0;
                }
                if (valid) {
                    pool.release(std::span<const PageId>(pages));
                    refs = after;
                } else {
                    REQUIRE_THROWS_AS(pool.release(std::span<const PageId>(pages)),
                                      InvalidArgument);
                }
            }
        }
        REQUIRE(owners(pool) == refs);
        REQUIRE(pool.free_pages() ==
                static_cast<std::size_t>(std::count(refs.begin(), refs.end(), 0u)));
    }
}

TEST_CASE("as many pages come and go as a span has, in whole words and beside them, in any order",
          "[G1][G2]") {
    const unsigned seed = GENERATE(range(1u, 13u));
    std::mt19937 random(seed);
    PagePool pool(64 * 20 + 10);
    std::vector<std::uint32_t> refs(pool.capacity_pages());
    std::vector<Ids> held;
    for (int step = 0; step < 300; ++step) {
        const std::size_t n = std::min<std::size_t>(62 + random() % 140, pool.free_pages());
        Ids pages(n + 1, PageId{7'777});
        REQUIRE(pool.acquire(std::span(pages).first(n)));
        REQUIRE(pages.back() == PageId{7'777});
        pages.pop_back();
        for (const PageId page : pages) REQUIRE(++refs[index_of(page)] == 1);
        // A page in the midst of its neighbours changes places with one that is released at another
        // time: what begins and ends like a run of neighbours is none.
        if (!held.empty() && n > 2) {
            Ids& other = held[random() % held.size()];
            std::swap(pages[1 + random() % (n - 2)], other[1 + random() % (other.size() - 2)]);
        }
        held.push_back(std::move(pages));
        while (pool.free_pages() < 300) {
            std::swap(held[random() % held.size()], held.back());
            pool.release(std::span<const PageId>(held.back()));
            for (const PageId page : held.back()) refs[index_of(page)] = 0;
            held.pop_back();
        }
        REQUIRE(owners(pool) == refs);
    }
}

TEST_CASE("a large pool hands out the pages that a scan of all of them would find next",
          "[G1][G2][G3]") {
    const unsigned seed = GENERATE(range(1u, 7u));
    std::mt19937 random(seed);
    const auto below = [&](std::size_t n) { return random() % n; };
    // More than four groups of 64 words, of whose pages at most few, half or all are free.
    const std::size_t capacity = 64 * 64 * 4 + 64 * below(64) + below(64) + 1;
    const std::size_t most_free = std::array{capacity / 20, capacity / 2, capacity}[seed % 3];
    PagePool pool(capacity);
    std::vector<bool> is_free(capacity, true);
    std::size_t begin = 0;    // the first page of the word where the scan begins
    std::size_t largest = 0;  // pages of the release that decided that
    std::vector<Ids> held;
    for (int step = 0; step < 400; ++step) {
        const std::size_t free = pool.free_pages();
        if (held.empty() || free > most_free || (free != 0 && below(2) == 0)) {
            Ids pages(1 + below(std::min<std::size_t>(free, below(4) == 0 ? 9000 : 300)));
            REQUIRE(pool.acquire(std::span(pages)));
            Ids expected;
            for (std::size_t at = begin; expected.size() < pages.size(); ++at) {
                if (at == capacity) at = 0;
                if (!is_free[at]) continue;
                is_free[at] = false;
                expected.push_back(PageId{static_cast<std::uint32_t>(at)});
            }
            REQUIRE(pages == expected);
            begin = index_of(pages.back()) / 64 * 64;
            largest = 0;
            held.push_back(std::move(pages));
        } else {
            std::swap(held[below(held.size())], held.back());
            Ids& pages = held.back();
            const std::size_t keep = below(2) == 0 ? 0 : below(pages.size());
            const auto gone = std::span<const PageId>(pages).subspan(keep);
            pool.release(gone);
            for (const PageId page : gone) is_free[index_of(page)] = true;
            if (gone.size() > largest) {
                largest = gone.size();
                begin = index_of(gone[0]) / 64 * 64;
            }
            pages.resize(keep);
            if (keep == 0) held.pop_back();
        }
    }
    const auto free = static_cast<std::size_t>(std::count(is_free.begin(), is_free.end(), true));
    CHECK(pool.free_pages() == free);
}

TEST_CASE("a page with one owner costs a bit and one with several a counter", "[G1]") {
    PagePool pool(1'000'000);
    const std::size_t bytes = pool.bytes();
    CHECK(bytes <= 1'000'000 / 8 + 4096);
    Ids pages = take(pool, 1'000'000);
    CHECK(pool.bytes() == bytes);
    pool.retain(pages[17]);
    CHECK(pool.bytes() <= bytes + 256);
}

TEST_CASE("the counters count like a map", "[G1]") {
    const unsigned seed = GENERATE(range(1u, 13u));
    std::mt19937 random(seed);
    const auto ids = static_cast<std::uint32_t>(1 + random() % 200);
    const std::uint32_t stride = 1u << random() % 20;  // ids whose low bits agree
    CountTable table;
    std::map<std::uint32_t, std::uint32_t> model;
    for (int step = 0; step < 4000; ++step) {
        const std::uint32_t id = static_cast<std::uint32_t>(random()) % ids * stride;
        if (random() % 2 == 0) {
            table.add(id);
            ++model[id];
        } else {
            REQUIRE(table.subtract(id) == (model[id] != 0));
            model[id] -= model[id] != 0 ? 1 : 0;
        }
        REQUIRE(table.count(id) == model[id]);
    }
    bool empty = true;
    for (const auto& [id, count] : model) {
        REQUIRE(table.count(id) == count);
        empty = empty && count == 0;
    }
    CHECK(table.empty() == empty);
}

TEST_CASE("counting again what was just taken off needs no memory", "[R1]") {
    CountTable table;
    for (std::uint32_t id = 0; id < 100; ++id) {
        table.add(id);
        table.add(id);
        const FailingAllocation failing(1);
        for (std::uint32_t known = 0; known <= id; ++known) {
            REQUIRE(table.subtract(known));
            table.add(known);
        }
        REQUIRE_FALSE(failing.fired());
    }
}

TEST_CASE("a failed count leaves the counters as they were", "[R1]") {
    CountTable table;
    std::size_t faults = 0;
    for (std::uint32_t id = 0; id < 100; ++id) {
        {
            const FailingAllocation failing(1);
            try {
                table.add(id);
            } catch (const std::bad_alloc&) {
                ++faults;
                REQUIRE(table.count(id) == 0);
            }
        }
        if (table.count(id) == 0) table.add(id);
        for (std::uint32_t known = 0; known <= id; ++known) REQUIRE(table.count(known) == 1);
    }
    CHECK(faults >= 4);
}

TEST_CASE("pages of a span are visited as words of neighbours, each page once", "[G1]") {
    const auto words_of = [](const Ids& pages) {
        std::vector<std::pair<std::uint32_t, std::uint64_t>> words;
        kvstem::detail::for_each_word(pages,
                                      [&](std::uint32_t word, std::uint64_t bits, std::size_t n) {
                                          CHECK(n == static_cast<std::size_t>(std::popcount(bits)));
                                          words.emplace_back(word, bits);
                                      });
        return words;
    };
    Ids run;
    for (std::uint32_t i = 62; i < 194; ++i) run.push_back(PageId{i});
    // 64 pages at a time, each of these cut where a word ends.
    CHECK(words_of(run) == std::vector<std::pair<std::uint32_t, std::uint64_t>>{{0, 3ull << 62},
                                                                                {1, ~0ull >> 2},
                                                                                {1, 3ull << 62},
                                                                                {2, ~0ull >> 2},
                                                                                {2, 3ull << 62},
                                                                                {3, 3}});
    CHECK(words_of(ids({5, 5, 4, 6})) ==
          std::vector<std::pair<std::uint32_t, std::uint64_t>>{{0, 32}, {0, 32}, {0, 16}, {0, 64}});
    CHECK(words_of(ids({0xFFFF'FFFE, 0xFFFF'FFFF, 0})) ==
          std::vector<std::pair<std::uint32_t, std::uint64_t>>{{0x3FF'FFFF, 3ull << 62}, {0, 1}});
    CHECK(words_of({}).empty());
}

TEST_CASE("a set of pages holds what was put in and not taken out", "[G1]") {
    std::mt19937 random(GENERATE(1u, 2u, 3u));
    PageBits bits(300);
    std::set<PageId> model;
    for (int step = 0; step < 500; ++step) {
        Ids pages;
        const auto first = static_cast<std::uint32_t>(random() % 300);
        for (std::uint32_t i = first; i < 300 && i < first + random() % 150; ++i) {
            pages.push_back(PageId{i});
        }
        const bool any = std::any_of(pages.begin(), pages.end(),
                                     [&](PageId page) { return model.count(page) != 0; });
        REQUIRE(bits.contains_any(pages) == any);
        if (random() % 2 == 0) {
            const bool twice = !pages.empty() && random() % 4 == 0;
            Ids span = pages;
            if (twice) span.push_back(pages[random() % pages.size()]);
            REQUIRE(bits.insert_new(span) == (!any && !twice));
            if (!any && !twice) model.insert(pages.begin(), pages.end());
        } else {
            bits.erase(pages);
            for (const PageId page : pages) model.erase(page);
        }
        REQUIRE(bits.count() == model.size());
        for (std::uint32_t i = 0; i < 300; ++i) {
            REQUIRE(bits.contains(PageId{i}) == (model.count(PageId{i}) != 0));
        }
    }
}
