// SPDX-License-Identifier: MIT
// The formatters of the opt-in header: every type has a text, laid out like a string.

#include "kvstem/fmt.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "catch.hpp"

namespace {

struct PositionsOnly {
    std::size_t positions = 0;
    [[nodiscard]] std::size_t length() const noexcept { return positions; }
    [[nodiscard]] std::size_t bytes() const noexcept { return positions * 100; }
    [[nodiscard]] PositionsOnly prefix(std::size_t n) const { return {n}; }
};

}  // namespace

TEST_CASE("every statistic is printed by its name", "[fmt]") {
    // All different, so that two that are swapped show.
    const kvstem::PrefixCacheStats stats{.hits = 1,
                                         .misses = 2,
                                         .queried_tokens = 3,
                                         .hit_tokens = 4,
                                         .missed_tokens = 5,
                                         .taken = 6,
                                         .stored = 7,
                                         .replaced = 8,
                                         .refused = 9,
                                         .evictions = 10,
                                         .entries = 11,
                                         .bytes = 12,
                                         .index_bytes = 13,
                                         .namespaces = 14};
    CHECK(fmt::format("{}", stats) ==
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

TEST_CASE("every field of the paged cache's statistics is printed") {
    kvstem::RadixCacheStats stats;
    stats.hits = 1;
    stats.partial_tokens = 2;
    stats.dropped_pages = 3;
    stats.index_bytes = 4;
    CHECK(fmt::format("{}", stats) ==
          "hits=1 misses=0 queried_tokens=0 hit_tokens=0 missed_tokens=0 partial_tokens=2 "
          "exhausted=0 never_fits=0 published_pages=0 duplicate_pages=0 evicted_pages=0 "
          "dropped_pages=3 capacity_pages=0 free_pages=0 cached_pages=0 pinned_pages=0 "
          "evictable_pages=0 leases=0 namespaces=0 nodes=0 index_bytes=4");
    kvstem::CachedEngineStats engine;
    engine.queried_tokens = 4;
    engine.reused_tokens = 3;
    engine.missed_tokens = 1;
    CHECK(fmt::format("{}", engine) ==
          "hit_rate=0.7500 hits=0 misses=0 queried_tokens=4 reused_tokens=3 missed_tokens=1 "
          "computed_tokens=0 stored_blocks=0 evicted_blocks=0 blocks=0 capacity_blocks=0 bytes=0");
}

TEST_CASE("Prometheus text has help, type and one sample for every statistic", "[C2]") {
    kvstem::RadixCacheStats stats;
    stats.hits = 7;
    stats.free_pages = 3;
    const kvstem::MetricLabel labels[] = {{"model", "a\"b\\c\nd"}, {"gpu", "0"}};
    const std::string text = kvstem::to_prometheus(stats, labels);
    CHECK_THAT(text, ContainsSubstring(
                         "# HELP kvstem_page_hits_total Granted requests that adopted something.\n"
                         "# TYPE kvstem_page_hits_total counter\n"
                         "kvstem_page_hits_total{model=\"a\\\"b\\\\c\\nd\",gpu=\"0\"} 7\n"));
    CHECK_THAT(text, ContainsSubstring("# TYPE kvstem_page_free gauge\n"));
    CHECK(kvstem::to_prometheus(kvstem::PrefixCacheStats{}).find("\nkvstem_snapshot_entries 0\n") !=
          std::string::npos);
    CHECK(kvstem::to_prometheus(kvstem::CachedEngineStats{}).find("\nkvstem_engine_blocks 0\n") !=
          std::string::npos);
}

TEST_CASE("Prometheus text follows the grammar of the format, each name once", "[C2]") {
    const kvstem::MetricLabel labels[] = {{"cache", "main"}};
    const auto check = [](const std::string& text, std::size_t fields) {
        std::istringstream lines(text);
        std::string help;
        std::string type;
        std::string sample;
        std::set<std::string> names;
        while (std::getline(lines, help)) {
            REQUIRE(std::getline(lines, type));
            REQUIRE(std::getline(lines, sample));
            const std::string name = sample.substr(0, sample.find('{'));
            CHECK(help.rfind("# HELP " + name + " ", 0) == 0);
            const bool counts = name.size() > 6 && name.substr(name.size() - 6) == "_total";
            CHECK(type == "# TYPE " + name + (counts ? " counter" : " gauge"));
            CHECK(sample.find("{cache=\"main\"} ") == name.size());
            CHECK(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == std::string::npos);
            CHECK(names.insert(name).second);
        }
        CHECK(names.size() == fields);
    };
    check(kvstem::to_prometheus(kvstem::PrefixCacheStats{}, labels), 14);
    check(kvstem::to_prometheus(kvstem::RadixCacheStats{}, labels), 21);
    check(kvstem::to_prometheus(kvstem::CachedEngineStats{}, labels), 11);
}
