// SPDX-License-Identifier: MIT
// Prometheus text: every statistic, in the grammar of the format. The reader that checks the grammar
// is itself checked first: it must refuse what a server would refuse.

#include "kvstem/prometheus.hpp"

#include <cstddef>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "catch.hpp"
#include "kvstem/reference/batcher.hpp"
#include "kvstem/shared_radix_cache.hpp"
#include "support/exposition.hpp"
#include "support/fail_allocation.hpp"
#include "support/numbered_stats.hpp"

using kvstem::MetricLabel;
using kvstem::PrometheusText;
using kvstem::to_prometheus;
using kvstem_test::Exposition;
using kvstem_test::numbered_engine_stats;
using kvstem_test::numbered_page_stats;
using kvstem_test::numbered_snapshot_stats;

namespace {

const std::string header = "# HELP a_total Some.\n# TYPE a_total counter\n";

struct Refused {
    std::string text;
    const char* fault;
};

using Values = std::map<std::string, int>;

/// The values of all samples of a text without labels, by name.
Values values(const std::string& text) {
    Values found;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        if (line[0] == '#') continue;
        const std::size_t space = line.find(' ');
        found[line.substr(0, space)] = std::stoi(line.substr(space + 1));
    }
    return found;
}

/// How often a text has a part.
std::size_t count(const std::string& text, std::string_view part) {
    std::size_t found = 0;
    for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
    return found;
}

}  // namespace

TEST_CASE("the reader of the format accepts what is right", "[C2]") {
    CHECK(Exposition::fault_of("") == "");
    CHECK(Exposition::fault_of(header + "a_total 1\n") == "");
    CHECK(Exposition::fault_of("# a comment\n\n" + header +
                               "a_total{x=\"1\",y=\"\\\\ \\\" \\n , }\"} 1.5e+3\n"
                               "a_total{x=\"2\"} +Inf\na_total{} NaN\n") == "");
    CHECK(
        Exposition::samples_of(header + "a_total{x=\"1\"} 1\na_total{x=\"2\"} 1\n").at("a_total") ==
        2);
}

TEST_CASE("the reader of the format refuses every kind of fault", "[C2]") {
    const Refused refused[] = {
        {header + "a_total 1", "the last line has no end"},
        {"a_total 1\n", "a sample without a type"},
        {"# TYPE a_total counter\na_total 1\n", "a sample without help"},
        {"# HELP a_total Some.\na_total 1\n", "a sample without a type"},
        {header, "has no sample"},
        {header + "a_total 1\na_total 2\n", "the same series twice"},
        {header + "a_total{x=\"1\",y=\"2\"} 1\na_total{y=\"2\",x=\"1\"} 1\n",
         "the same series twice"},
        {header + header + "a_total 1\n", "a second line of help"},
        {header + "# TYPE a_total counter\na_total 1\n", "a second type"},
        {header + "a_total 1\n# HELP b B.\n# TYPE b gauge\nb 1\na_total{x=\"1\"} 1\n",
         "lines of one name apart"},
        {"# HELP a_total A.\na_total 1\n# TYPE a_total counter\n", "a sample without a type"},
        {"# HELP 1a A.\n", "not the name of a metric"},
        {"# HELP a-b A.\n", "no help"},
        {"# HELP a\\t A.\n", "no help"},
        {"# HELP a A \\t.\n", "an unknown escape in the help"},
        {"# TYPE a_total speed\n", "an unknown type"},
        {"# TYPE a_total gauge\n", "_total and counter do not go together"},
        {"# TYPE a counter\n", "_total and counter do not go together"},
        {header + "a_total{x=\"say \"hi\"\"} 1\n", "the labels do not end"},
        {header + "a_total{x=\"\\t\"} 1\n", "an unknown escape in the value of a label"},
        {header + "a_total{x=\"two\nlines\"} 1\n", "the value of a label does not end"},
        {header + "a_total{1x=\"1\"} 1\n", "not the name of a label"},
        {header + "a_total{x:y=\"1\"} 1\n", "no quote before the value of a label"},
        {header + "a_total{x=1} 1\n", "no quote before the value of a label"},
        {header + "a_total{x=\"1\",x=\"2\"} 1\n", "the same label twice"},
        {header + "a_total{x=\"1\"\n", "the labels do not end"},
        {header + "a_total{x=\"1\"}1\n", "no space before the value"},
        {header + "a_total one\n", "not a number"},
        {header + "a_total 1,5\n", "not a number"},
        {header + "a_total \n", "not a number"},
    };
    for (const Refused& each : refused) {
        INFO(each.text);
        CHECK_THAT(Exposition::fault_of(each.text), ContainsSubstring(each.fault));
    }
}

TEST_CASE("Prometheus text has help, type and one sample for every statistic", "[C2]") {
    const auto families = [](const std::string& text) {
        REQUIRE(Exposition::fault_of(text) == "");
        return Exposition::samples_of(text).size();
    };
    // A counter that is added to the statistics has to be added to the text as well: where all
    // fields have 8 bytes, the size tells how many there are.
    const auto fields = [](std::size_t bytes, std::size_t known) {
        return sizeof(std::size_t) == 8 ? bytes / 8 : known;
    };
    CHECK(families(to_prometheus(kvstem::PrefixCacheStats{})) ==
          fields(sizeof(kvstem::PrefixCacheStats), 14));
    CHECK(families(to_prometheus(kvstem::RadixCacheStats{})) ==
          fields(sizeof(kvstem::RadixCacheStats), 21));
    CHECK(families(to_prometheus(kvstem::CachedEngineStats{})) ==
          fields(sizeof(kvstem::CachedEngineStats), 11));
    CHECK(families(to_prometheus(kvstem::reference::BatcherStats{})) ==
          fields(sizeof(kvstem::reference::BatcherStats), 5));
    // Four rates are one family with four samples.
    CHECK(families(to_prometheus(kvstem::GhostRates{})) == sizeof(kvstem::GhostRates) / 8 - 3);
    CHECK(families(to_prometheus(kvstem::PagePool(3))) == 3);
}

TEST_CASE("each statistic stands under its own name", "[C2]") {
    CHECK(values(to_prometheus(numbered_snapshot_stats)) ==
          Values{{"kvstem_snapshot_hits_total", 1},
                 {"kvstem_snapshot_misses_total", 2},
                 {"kvstem_snapshot_queried_tokens_total", 3},
                 {"kvstem_snapshot_hit_tokens_total", 4},
                 {"kvstem_snapshot_missed_tokens_total", 5},
                 {"kvstem_snapshot_taken_total", 6},
                 {"kvstem_snapshot_stored_total", 7},
                 {"kvstem_snapshot_replaced_total", 8},
                 {"kvstem_snapshot_refused_total", 9},
                 {"kvstem_snapshot_evictions_total", 10},
                 {"kvstem_snapshot_entries", 11},
                 {"kvstem_snapshot_bytes", 12},
                 {"kvstem_snapshot_index_bytes", 13},
                 {"kvstem_snapshot_namespaces", 14}});
    CHECK(values(to_prometheus(numbered_page_stats)) ==
          Values{{"kvstem_page_hits_total", 1},
                 {"kvstem_page_misses_total", 2},
                 {"kvstem_page_queried_tokens_total", 3},
                 {"kvstem_page_hit_tokens_total", 4},
                 {"kvstem_page_missed_tokens_total", 5},
                 {"kvstem_page_partial_tokens_total", 6},
                 {"kvstem_page_exhausted_total", 7},
                 {"kvstem_page_never_fits_total", 8},
                 {"kvstem_page_published_total", 9},
                 {"kvstem_page_duplicates_total", 10},
                 {"kvstem_page_evicted_total", 11},
                 {"kvstem_page_dropped_total", 12},
                 {"kvstem_page_capacity", 13},
                 {"kvstem_page_free", 14},
                 {"kvstem_page_cached", 15},
                 {"kvstem_page_pinned", 16},
                 {"kvstem_page_evictable", 17},
                 {"kvstem_page_leases", 18},
                 {"kvstem_page_namespaces", 19},
                 {"kvstem_page_nodes", 20},
                 {"kvstem_page_index_bytes", 21}});
    CHECK(values(to_prometheus(numbered_engine_stats)) ==
          Values{{"kvstem_engine_hits_total", 1},
                 {"kvstem_engine_misses_total", 2},
                 {"kvstem_engine_queried_tokens_total", 3},
                 {"kvstem_engine_reused_tokens_total", 4},
                 {"kvstem_engine_missed_tokens_total", 5},
                 {"kvstem_engine_computed_tokens_total", 6},
                 {"kvstem_engine_stored_blocks_total", 7},
                 {"kvstem_engine_evicted_blocks_total", 8},
                 {"kvstem_engine_blocks", 9},
                 {"kvstem_engine_capacity_blocks", 10},
                 {"kvstem_engine_bytes", 11}});
    const kvstem::reference::BatcherStats batcher{
        .steps = 1, .tokens_computed = 2, .preemptions = 3, .peak_running = 4, .peak_pages = 5};
    CHECK(values(to_prometheus(batcher)) == Values{{"kvstem_batcher_steps_total", 1},
                                                   {"kvstem_batcher_computed_tokens_total", 2},
                                                   {"kvstem_batcher_preemptions_total", 3},
                                                   {"kvstem_batcher_peak_running", 4},
                                                   {"kvstem_batcher_peak_pages", 5}});
}

TEST_CASE("counters end in _total and are counters, the others are gauges", "[C2]") {
    kvstem::RadixCacheStats stats;
    stats.hits = 7;
    stats.free_pages = 3;
    const std::string text = to_prometheus(stats, {{"gpu", "0"}});
    CHECK_THAT(text, StartsWith("# HELP kvstem_page_hits_total Granted requests that adopted "
                                "something.\n"
                                "# TYPE kvstem_page_hits_total counter\n"
                                "kvstem_page_hits_total{gpu=\"0\"} 7\n"));
    CHECK_THAT(text, ContainsSubstring("# TYPE kvstem_page_free gauge\n"
                                       "kvstem_page_free{gpu=\"0\"} 3\n"));
    CHECK(count(text, " counter\n") == 12);
    CHECK(count(text, " gauge\n") == 9);
}

TEST_CASE("whatever has statistics can be added itself", "[C2]") {
    kvstem::RadixCache<> cache({.page_tokens = 2}, kvstem::PagePool(8));
    const std::vector<kvstem::Token> prompt{1, 2, 3};
    {
        (void)cache.acquire(prompt);
    }
    CHECK(to_prometheus(cache) == to_prometheus(cache.stats()));
    CHECK_THAT(to_prometheus(cache), ContainsSubstring("\nkvstem_page_misses_total 1\n"));
    CHECK_THAT(to_prometheus(cache.pages()), ContainsSubstring("\nkvstem_pool_free_pages 8\n"));

    const kvstem::SharedRadixCache<> shared({.page_tokens = 2}, kvstem::PagePool(8));
    const std::string text = to_prometheus(shared);
    CHECK(Exposition::fault_of(text) == "");
    CHECK_THAT(text, ContainsSubstring("\nkvstem_page_waiting_requests 0\n"));

    kvstem::GhostCache ghosts({.capacity_pages = 8, .page_tokens = 1});
    ghosts.observe(prompt);
    ghosts.observe(prompt);
    CHECK_THAT(to_prometheus(ghosts),
               ContainsSubstring("\nkvstem_ghost_hit_ratio{times_capacity=\"2\"} 0.5\n"));
}

TEST_CASE("several caches are told apart by labels and grouped by name", "[C2]") {
    PrometheusText text;
    CHECK(text.text().empty());
    text.add(kvstem::RadixCacheStats{}, {{"cache", "chats"}});
    text.add(kvstem::PagePool(4));
    text.add(kvstem::RadixCacheStats{}, {{"cache", "jobs"}});
    const std::string all = text.text();
    CHECK(Exposition::fault_of(all) == "");
    CHECK_THAT(all, ContainsSubstring("# TYPE kvstem_page_hits_total counter\n"
                                      "kvstem_page_hits_total{cache=\"chats\"} 0\n"
                                      "kvstem_page_hits_total{cache=\"jobs\"} 0\n"));
    // The two texts one behind the other are what a server refuses.
    CHECK_THAT(Exposition::fault_of(to_prometheus(kvstem::PagePool(4), {{"pool", "a"}}) +
                                    to_prometheus(kvstem::PagePool(4), {{"pool", "b"}})),
               ContainsSubstring("lines of one name apart"));
}

TEST_CASE("the same series is refused before anything is added", "[C2][R1]") {
    PrometheusText text;
    text.add(kvstem::PagePool(4), {{"a", "2"}, {"b", "1"}});
    const std::string before = text.text();
    const auto add_again = [&] { text.add(kvstem::PagePool(5), {{"b", "1"}, {"a", "2"}}); };
    CHECK_THROWS_AS(add_again(), kvstem::InvalidArgument);
    CHECK_THROWS_WITH(add_again(), "kvstem_pool_capacity_pages{a=\"2\",b=\"1\"} is added twice");
    CHECK(text.text() == before);
    text.add(kvstem::PagePool(5), {{"a", "1"}});
    CHECK(Exposition::fault_of(text.text()) == "");
}

TEST_CASE("an allocation that fails adds nothing", "[C2][R1]") {
    std::size_t fired = 0;
    for (std::size_t n = 1;; ++n) {
        PrometheusText text;
        text.add(kvstem::PagePool(4), {{"pool", "first"}});
        const std::string before = text.text();
        const auto outcome = kvstem_test::with_failing_allocation(n, [&] {
            text.add(kvstem::GhostRates{}, {{"pool", "of a name that needs memory of its own"}});
        });
        CHECK(outcome.fired == outcome.threw);
        if (!outcome.fired) break;
        ++fired;
        CHECK(text.text() == before);
    }
    CHECK(fired > 10);
}

TEST_CASE("the values of labels may be anything", "[C2]") {
    const std::string all_bytes = [] {
        std::string bytes;
        for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
        return bytes;
    }();
    for (const std::string& value :
         {std::string("a\"b\\c\nd"), std::string(), std::string("{x=\"y\"} 1"), all_bytes}) {
        const std::string text = to_prometheus(kvstem::PagePool(1), {{"x", value}});
        CHECK(Exposition::fault_of(text) == "");
    }
    CHECK_THAT(to_prometheus(kvstem::PagePool(1), {{"x", "a\"b\\c\nd"}}),
               ContainsSubstring("{x=\"a\\\"b\\\\c\\nd\"} 1\n"));
    // What is no UTF-8 becomes U+FFFD: cut off, overlong, a surrogate, beyond the last character.
    const auto value_of = [](std::string_view value) {
        const std::string text = to_prometheus(kvstem::PagePool(1), {{"x", value}});
        const std::size_t begin = text.find("=\"") + 2;
        return text.substr(begin, text.find("\"}") - begin);
    };
    CHECK(value_of("\xC3\xBC \xE2\x82\xAC \xF0\x9F\x8C\xB1") ==
          "\xC3\xBC \xE2\x82\xAC \xF0\x9F\x8C\xB1");
    CHECK(value_of("\xC3") == "\xEF\xBF\xBD");
    CHECK(value_of("\xC0\x80") == "\xEF\xBF\xBD\xEF\xBF\xBD");
    CHECK(value_of("\xED\xA0\x80").size() == 9);
    CHECK(value_of("\xE0\x80\x80").size() == 9);
    CHECK(value_of("\xF0\x80\x80\x80").size() == 12);
    CHECK(value_of("\xF4\x90\x80\x80").size() == 12);
    CHECK(value_of("\xF5").size() == 3);
    CHECK(value_of("\xE2\x82x") == "\xEF\xBF\xBD\xEF\xBF\xBDx");
}

TEST_CASE("the names of labels are those the format allows, each once", "[C2]") {
    const kvstem::PagePool pool(1);
    for (const char* name : {"", "1a", "a-b", "a b", "a:b", "__a", "\xC3\xBC", "a\n"}) {
        INFO(name);
        const MetricLabel label[] = {{name, "x"}};
        CHECK_THROWS_AS(to_prometheus(pool, label), kvstem::InvalidArgument);
    }
    const MetricLabel twice[] = {{"a", "1"}, {"a", "2"}};
    CHECK_THROWS_AS(to_prometheus(pool, twice), kvstem::InvalidArgument);
    // One that the ghosts bring themselves is given twice then.
    const MetricLabel own[] = {{"times_capacity", "3"}};
    CHECK_THROWS_AS(to_prometheus(kvstem::GhostRates{}, own), kvstem::InvalidArgument);
    const MetricLabel labels[] = {{"_a", "1"}, {"Z9", "2"}};
    CHECK(Exposition::fault_of(to_prometheus(pool, labels)) == "");
}
