// SPDX-License-Identifier: MIT
// The formatters of the opt-in header: every type has a text, laid out like a string.

#include "kvstem/fmt.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "catch.hpp"
#include "kvstem/reference/batcher.hpp"
#include "support/numbered_stats.hpp"

using kvstem_test::numbered_engine_stats;
using kvstem_test::numbered_page_stats;
using kvstem_test::numbered_snapshot_stats;

namespace {

struct PositionsOnly {
    std::size_t positions = 0;
    [[nodiscard]] std::size_t length() const noexcept { return positions; }
    [[nodiscard]] std::size_t bytes() const noexcept { return positions * 100; }
    [[nodiscard]] PositionsOnly prefix(std::size_t n) const { return {n}; }
};

}  // namespace

TEST_CASE("every statistic is printed by its name", "[fmt]") {
    CHECK(fmt::format("{}", numbered_snapshot_stats) ==
          "hits=1 misses=2 queried_tokens=3 hit_tokens=4 missed_tokens=5 taken=6 stored=7 "
          "replaced=8 refused=9 evictions=10 entries=11 bytes=12 index_bytes=13 namespaces=14");
    // A counter that is added to the statistics has to be added to the text as well.
    STATIC_REQUIRE(sizeof(kvstem::PrefixCacheStats) ==
                   10 * sizeof(std::uint64_t) + 4 * sizeof(std::size_t));
}

TEST_CASE("the statistics of a used cache print what happened", "[fmt]") {
    kvstem::PrefixCache<PositionsOnly> cache;
    const std::vector<kvstem::Token> stored{1, 2, 3};
    const std::vector<kvstem::Token> asked{1, 2, 9, 9};
    REQUIRE(fmt::format("{}", cache.store(stored, PositionsOnly{3})) == "stored");
    REQUIRE(fmt::format("{}", cache.store(stored, PositionsOnly{3})) == "replaced");
    REQUIRE(fmt::format("{}", cache.peek(asked)) == "2 tokens without logits");
    REQUIRE(cache.acquire(asked));
    const std::string text = fmt::format("{}", cache.stats());
    CHECK_THAT(text, StartsWith("hits=1 misses=0 queried_tokens=4 hit_tokens=2 missed_tokens=2 "));
    CHECK_THAT(text, ContainsSubstring(" stored=2 replaced=1 "));
    CHECK_THAT(text, ContainsSubstring(" entries=1 "));
    CHECK(fmt::format("{}", cache.audit()) == "ok");
}

TEST_CASE("a match says whether logits come with it", "[fmt]") {
    CHECK(fmt::format("{}", kvstem::SnapshotMatch{12, true}) == "12 tokens with logits");
    CHECK(fmt::format("{}", kvstem::SnapshotMatch{}) == "0 tokens without logits");
}

TEST_CASE("every outcome of a store has a word", "[fmt]") {
    CHECK(fmt::format("{}", kvstem::StoreOutcome::stored) == "stored");
    CHECK(fmt::format("{}", kvstem::StoreOutcome::replaced) == "replaced");
    CHECK(fmt::format("{}", kvstem::StoreOutcome::empty) == "empty");
    CHECK(fmt::format("{}", kvstem::StoreOutcome::too_large) == "too large");
    CHECK(fmt::format("{}", static_cast<kvstem::StoreOutcome>(77)) == "StoreOutcome(77)");
}

TEST_CASE("an audit prints one finding a line", "[fmt]") {
    kvstem::AuditReport report;
    CHECK(fmt::format("{}", report) == "ok");
    report.add("a node without pages", 7);
    CHECK(fmt::format("{}", report.findings.front()) == "a node without pages (at 7)");
    report.add("a {} stays as it is", 8);
    CHECK(fmt::format("{}", report) == "a node without pages (at 7)\na {} stays as it is (at 8)");
}

TEST_CASE("namespaces that differ print differently", "[fmt][M7]") {
    CHECK(fmt::format("{}", kvstem::Namespace{}) == "default");
    CHECK(fmt::format("{}", kvstem::Namespace{.adapter = "X"}) == "adapter=\"X\"");
    CHECK(fmt::format("{}", kvstem::Namespace{.salt = "X"}) == "salt=\"X\"");
    CHECK(fmt::format("{}", kvstem::Namespace{.salt = ""}) == "salt=\"\"");
    CHECK(fmt::format("{}", kvstem::Namespace{.adapter = "a", .version = "2", .salt = "t"}) ==
          "adapter=\"a\" version=\"2\" salt=\"t\"");
    CHECK(fmt::format("{}", kvstem::Namespace{.adapter = "a\" salt=\"t"}) ==
          "adapter=\"a\\\" salt=\\\"t\"");
    CHECK(fmt::format("{}", kvstem::Namespace{.salt = "\\\n\x7f"}) == "salt=\"\\\\\\x0a\\x7f\"");
    // What is not UTF-8 as in the pictures.
    CHECK(fmt::format("{}", kvstem::Namespace{.salt = "\xff"}) == "salt=\"\\xff\"");
}

TEST_CASE("no page is not a number", "[fmt]") {
    CHECK(fmt::format("{}", kvstem::PageId{7}) == "7");
    CHECK(fmt::format("{}", kvstem::no_page) == "none");
}

TEST_CASE("a match in the tree names its deepest node", "[fmt]") {
    const kvstem::TreeMatch match{kvstem::NodeId{3}, 2, 12};
    CHECK(fmt::format("{}", match) == "12 pages to node 3 (2 of its pages)");
}

TEST_CASE("all of them are laid out like strings", "[fmt]") {
    CHECK(fmt::format("{:>8}|", kvstem::PageId{7}) == "       7|");
    CHECK(fmt::format("{:*^10}|", kvstem::StoreOutcome::stored) == "**stored**|");
    CHECK(fmt::format("{:<10}|", kvstem::Namespace{}) == "default   |");
}

TEST_CASE("the outcomes of the paged cache and the engine wrapper print as words") {
    CHECK(fmt::format("{}", kvstem::Admission::granted) == "granted");
    CHECK(fmt::format("{}", kvstem::Admission::exhausted) == "exhausted");
    CHECK(fmt::format("{:>12}", kvstem::Admission::never_fits) == "  never fits");
    CHECK(fmt::format("{}", kvstem::FinishReason::out_of_pages) == "out of pages");
    CHECK(fmt::format("{}", kvstem::EngineForm::row) == "row");
    CHECK(fmt::format("{}", kvstem::RadixMatch{12, 8}) == "12 tokens cached, 8 adoptable");
}

TEST_CASE("every field of the paged cache's statistics and of the wrapper's is printed", "[fmt]") {
    CHECK(fmt::format("{}", numbered_page_stats) ==
          "hits=1 misses=2 queried_tokens=3 hit_tokens=4 missed_tokens=5 partial_tokens=6 "
          "exhausted=7 never_fits=8 published_pages=9 duplicate_pages=10 evicted_pages=11 "
          "dropped_pages=12 capacity_pages=13 free_pages=14 cached_pages=15 pinned_pages=16 "
          "evictable_pages=17 leases=18 namespaces=19 nodes=20 index_bytes=21");
    CHECK(fmt::format("{}", numbered_engine_stats) ==
          "hit_rate=1.3333 hits=1 misses=2 queried_tokens=3 reused_tokens=4 missed_tokens=5 "
          "computed_tokens=6 stored_blocks=7 evicted_blocks=8 blocks=9 capacity_blocks=10 "
          "bytes=11");
}

namespace {

/// A lease of 10 positions on pages of 4, of which 8 were published by another.
struct SmallCache {
    kvstem::RadixCache<> cache{{.page_tokens = 4}, kvstem::PagePool(16)};
    std::vector<kvstem::Token> prompt{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};

    kvstem::Acquired<kvstem::RadixCache<>::Lease> acquire() {
        auto acquired = cache.acquire(prompt);
        REQUIRE(acquired);
        acquired.lease.publish(
            std::span<const kvstem::Token>(prompt).subspan(acquired.lease.adopted()));
        return acquired;
    }
};

}  // namespace

TEST_CASE("a lease prints what it holds, and an empty one that it is empty", "[fmt]") {
    SmallCache small;
    {
        (void)small.acquire();
    }
    auto acquired = small.acquire();
    CHECK(fmt::format("{}", acquired.lease) ==
          "adopted=8 written=10 published=8 capacity=12 pages 0 1 2");
    CHECK(fmt::format("{}", acquired) ==
          "granted: adopted=8 written=10 published=8 capacity=12 pages 0 1 2");
    acquired.lease.release();
    CHECK(fmt::format("{:>6}", acquired.lease) == " empty");
    const auto refused = small.cache.acquire(std::vector<kvstem::Token>(1000, 1));
    CHECK(fmt::format("{}", refused) == "never fits");
}

TEST_CASE("pages that slid away are dashes, and long tables are shortened", "[fmt][W2]") {
    kvstem::RadixCache<> cache({.page_tokens = 1}, kvstem::PagePool(64));
    const std::vector<kvstem::Token> prompt(12, 7);
    auto [admission, lease] = cache.acquire_sliding(prompt, {.window_tokens = 2});
    REQUIRE(admission == kvstem::Admission::granted);
    lease.wrote(prompt);
    REQUIRE(lease.slide() > 0);
    CHECK_THAT(fmt::format("{}", lease), ContainsSubstring(" pages - - - - ... "));
}

TEST_CASE("a cache prints its tree, one that is shared the same", "[fmt]") {
    SmallCache small;
    const auto acquired = small.acquire();
    const std::string picture = fmt::format("{}", small.cache);
    CHECK(picture + "\n" == kvstem::to_text(small.cache));
    CHECK_THAT(picture, EndsWith("[0, 8) tokens 1 2 3 4 5 6 7 8, pages 0 1, pinned"));

    kvstem::SharedRadixCache<> shared({.page_tokens = 4}, kvstem::PagePool(16));
    const auto also = shared.acquire(small.prompt);
    CHECK(fmt::format("{}", also.lease) ==
          "adopted=0 written=0 published=0 capacity=12 pages 0 1 2");
    CHECK_THAT(fmt::format("{}", shared), EndsWith("page size 4\ndefault namespace"));
}

TEST_CASE("hits, pools, ghosts and batchers print", "[fmt]") {
    CHECK(fmt::format("{}",
                      kvstem::SnapshotHit<PositionsOnly, std::vector<float>>{
                          {}, 12, std::vector<float>{1}, true}) == "12 tokens with logits, moved");
    kvstem::PagePool pool(5);
    REQUIRE(pool.acquire());
    CHECK(fmt::format("{}", pool) == "4 of 5 pages free");
    CHECK(fmt::format("{}", kvstem::GhostRates{0.25, 0.5, 0.75, 1, 9, 8}) ==
          "half=0.2500 same=0.5000 twice=0.7500 four_times=1.0000 pages=9 sampled_pages=8");
    CHECK(fmt::format("{}", kvstem::reference::BatcherStats{1, 2, 3, 4, 5}) ==
          "steps=1 tokens_computed=2 preemptions=3 peak_running=4 peak_pages=5");
}
