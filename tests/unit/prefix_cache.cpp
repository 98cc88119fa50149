// SPDX-License-Identifier: MIT
// PrefixCache: one test for each of its rules and each behaviour it promises.

#include "kvstem/prefix_cache.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "support/archetypes.hpp"
#include "support/counting_kv.hpp"
#include "support/fail_allocation.hpp"

using kvstem::Namespace;
using kvstem::PrefixCache;
using kvstem::PrefixCacheStats;
using kvstem::SnapshotMatch;
using kvstem::StoreOutcome;
using namespace kvstem_test;

namespace {

using Cache = PrefixCache<CountingKv>;
using Logits = std::vector<float>;

/// Logits that tell which sequence they belong to.
Logits logits_of(const Tokens& tokens) {
    float sum = 0;
    for (const auto token : tokens) sum = sum * 0.5F + static_cast<float>(token);
    return {sum, static_cast<float>(tokens.size())};
}

template <class Kv>
StoreOutcome store(PrefixCache<Kv>& cache, const Tokens& tokens, const Namespace& name = {}) {
    return cache.store(tokens, Kv(tokens), logits_of(tokens), name);
}

template <class Kv>
void check_audit(const PrefixCache<Kv>& cache) {
    const kvstem::AuditReport report = cache.audit();
    INFO((report.ok() ? "" : report.findings.front().what));
    CHECK(report.ok());
}

/// The tokens of a hit's KV; no hit reads as an empty sequence.
template <class Hit>
Tokens rows_of(const std::optional<Hit>& hit) {
    return hit ? hit->kv.rows() : Tokens();
}

}  // namespace

namespace {

/// Can be cut at one position and nowhere else, whatever is asked for.
struct CutAtKv : CountingRows {
    using CountingRows::CountingRows;
    std::size_t at = 0;

    CutAtKv(std::span<const kvstem::Token> computed, std::size_t cut)
        : CountingRows(computed), at(cut) {}
    [[nodiscard]] std::size_t longest_cut(std::size_t /*n*/) const noexcept { return at; }
    [[nodiscard]] CutAtKv prefix(std::size_t n) const { return {first_rows(n), at}; }
};

/// As large as can be.
struct EnormousKv : CountingRows {
    using CountingRows::CountingRows;
    [[nodiscard]] static std::size_t bytes() noexcept { return kvstem::unlimited - 4; }
};

}  // namespace

// --- What a lookup returns -----------------------------------------------------------------------

TEST_CASE("an empty cache always misses and counts it", "[C1]") {
    Cache cache;
    CHECK_FALSE(cache.acquire(Tokens{1, 2, 3}));
    CHECK_FALSE(cache.take(Tokens{1, 2}));
    CHECK(cache.stats().misses == 2);
    CHECK(cache.stats().hits == 0);
    CHECK(cache.stats().missed_tokens == 5);
    CHECK(cache.stats().hit_tokens == 0);
    check_audit(cache);
}

TEST_CASE("an exact match returns the full length and its logits", "[S2][S3]") {
    Cache cache;
    store(cache, {1, 2, 3});
    const auto hit = cache.acquire(Tokens{1, 2, 3});
    REQUIRE(hit);
    CHECK(hit->tokens == 3);
    CHECK(hit->kv.rows() == Tokens{1, 2, 3});
    CHECK(hit->logits == logits_of({1, 2, 3}));
    CHECK_FALSE(hit->moved);
}

TEST_CASE("an extension matches the stored length with its logits", "[S2][S3]") {
    Cache cache;
    store(cache, {1, 2, 3});
    const auto hit = cache.acquire(Tokens{1, 2, 3, 4, 5});
    REQUIRE(hit);
    CHECK(hit->tokens == 3);
    CHECK(hit->kv.rows() == Tokens{1, 2, 3});
    CHECK(hit->logits == logits_of({1, 2, 3}));
}

TEST_CASE("a divergent match returns only the common length and no logits", "[S2][S3]") {
    Cache cache;
    store(cache, {1, 2, 3, 4});
    const auto hit = cache.acquire(Tokens{1, 2, 9, 9, 9});
    REQUIRE(hit);
    CHECK(hit->tokens == 2);
    CHECK(hit->kv.rows() == Tokens{1, 2});
    CHECK_FALSE(hit->logits);
}

TEST_CASE("a prompt that ends inside a stored sequence gets no logits", "[S2][S3]") {
    Cache cache;
    store(cache, {1, 2, 3, 4});
    const auto hit = cache.acquire(Tokens{1, 2});
    REQUIRE(hit);
    CHECK(hit->kv.rows() == Tokens{1, 2});
    CHECK_FALSE(hit->logits);
}

TEST_CASE("nothing in common is a clean miss", "[M1]") {
    Cache cache;
    store(cache, {1, 2, 3});
    CHECK_FALSE(cache.acquire(Tokens{2, 2, 3}));
    CHECK(cache.stats().misses == 1);
    CHECK(cache.stats().missed_tokens == 3);
    CHECK(cache.size() == 1);
    check_audit(cache);
}

TEST_CASE("a snapshot stored without logits is handed out without", "[S3]") {
    Cache cache;
    cache.store(Tokens{1, 2}, CountingKv(Tokens{1, 2}));
    const auto hit = cache.acquire(Tokens{1, 2});
    REQUIRE(hit);
    CHECK(hit->tokens == 2);
    CHECK_FALSE(hit->logits);
    CHECK_FALSE(cache.peek(Tokens{1, 2}).has_logits);
}

TEST_CASE("for every pair of lengths the match is exactly the common prefix", "[S2]") {
    const Tokens all = counted(9, 100);
    for (std::size_t stored = 1; stored <= all.size(); ++stored) {
        for (std::size_t common = 0; common <= all.size(); ++common) {
            Cache cache;
            store(cache, Tokens(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(stored)));
            Tokens prompt(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(common));
            prompt.push_back(7);
            const std::size_t expected = stored < common ? stored : common;
            CAPTURE(stored, common);
            CHECK(cache.peek(prompt).tokens == expected);
            const auto hit = cache.acquire(prompt);
            CHECK(rows_of(hit) ==
                  Tokens(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(expected)));
            CHECK((hit && hit->logits) == (expected == stored));
        }
    }
}

// --- Which entry wins ----------------------------------------------------------------------------

TEST_CASE("the longest of several stored prefixes wins", "[S1]") {
    Cache cache;
    store(cache, {1, 2, 3, 4});
    store(cache, {1});
    store(cache, {1, 2, 3});
    store(cache, {1, 2});
    CHECK(rows_of(cache.acquire(Tokens{1, 2, 3, 4, 5})) == Tokens{1, 2, 3, 4});
    CHECK(rows_of(cache.acquire(Tokens{1, 2, 3, 9})) == Tokens{1, 2, 3});
    CHECK(rows_of(cache.acquire(Tokens{1, 2, 9})) == Tokens{1, 2});
    CHECK(rows_of(cache.acquire(Tokens{1, 9})) == Tokens{1});
}

TEST_CASE("a short prefix stored later does not hide a long one", "[S1][C13]") {
    Cache cache;
    const Tokens p = counted(20);
    const Tokens pa = joined(p, {500, 501, 502});
    store(cache, pa);
    store(cache, p);
    const auto hit = cache.acquire(joined(pa, {900}));
    CHECK(rows_of(hit) == pa);
    CHECK(hit->logits == logits_of(pa));
}

TEST_CASE("a huge entry with the same beginning is cut and stays cached", "[S1][C14]") {
    Cache cache;
    const Tokens s = counted(3);
    const Tokens sa = joined(s, counted(5000, 100));
    store(cache, sa);
    const auto hit = cache.acquire(joined(s, {9000, 9001}));
    CHECK(rows_of(hit) == s);
    CHECK_FALSE(hit->logits);
    CHECK(cache.peek(sa).tokens == sa.size());
    CHECK(cache.peek(sa).has_logits);
    CHECK(cache.size() == 1);
}

TEST_CASE("at equal length the entry that ends there wins over one used later", "[S1]") {
    Cache cache;
    store(cache, {1, 2});
    store(cache, {1, 2, 3});
    REQUIRE(cache.acquire(Tokens{1, 2, 3}));  // the longer one is now the one used last
    const auto hit = cache.acquire(Tokens{1, 2, 9});
    CHECK(rows_of(hit) == Tokens{1, 2});
    CHECK(hit->logits == logits_of({1, 2}));
}

TEST_CASE("at equal length and without an exact end the one used last wins", "[S1]") {
    // Which one served shows in what is evicted: the server was used.
    Cache cache;
    store(cache, {1, 2, 3});
    store(cache, {1, 2, 4});
    store(cache, {1, 2, 5});
    REQUIRE(cache.acquire(Tokens{1, 2, 4}));
    REQUIRE(cache.acquire(Tokens{1, 2, 9}));  // served by …4
    REQUIRE(cache.evict());
    REQUIRE(cache.evict());
    CHECK(cache.peek(Tokens{1, 2, 4}).tokens == 3);
    CHECK(cache.size() == 1);
}

// --- Looking without touching --------------------------------------------------------------------

TEST_CASE("peek says what acquire would return and has no effect", "[M2][C33]") {
    Cache cache;
    store(cache, {1, 2, 3});
    store(cache, {4, 5});
    const PrefixCacheStats before = cache.stats();
    kv_counts = {};
    for (int i = 0; i < 3; ++i) {
        CHECK(cache.peek(Tokens{1, 2, 3, 4}).tokens == 3);
        CHECK(cache.peek(Tokens{1, 2, 3, 4}).has_logits);
        CHECK(cache.peek(Tokens{1, 2, 9}).tokens == 2);
        CHECK_FALSE(cache.peek(Tokens{1, 2, 9}).has_logits);
        CHECK(cache.peek(Tokens{9}).tokens == 0);
    }
    CHECK(kv_counts.copies == 0);
    CHECK(cache.stats().hits == before.hits);
    CHECK(cache.stats().misses == before.misses);
    CHECK(cache.stats().queried_tokens == before.queried_tokens);
    CHECK(cache.stats().index_bytes == before.index_bytes);
    REQUIRE(cache.evict());  // no use was stamped: the first one stored is still the oldest
    CHECK(cache.peek(Tokens{1}).tokens == 0);
    CHECK(cache.peek(Tokens{4}).tokens == 1);
}

TEST_CASE("looking three times and then acquiring counts one query", "[C33]") {
    Cache cache;
    store(cache, {1, 2, 3});
    const Tokens prompt{1, 2, 3, 4};
    for (int i = 0; i < 3; ++i) (void)cache.peek(prompt);
    (void)cache.acquire(prompt);
    CHECK(cache.stats().hits + cache.stats().misses == 1);
    CHECK(cache.stats().queried_tokens == 4);
}

TEST_CASE("peek allocates nothing", "[M2]") {
    Cache cache;
    store(cache, {1, 2, 3});
    store(cache, {1, 2, 4}, {.adapter = "a"});
    const Tokens prompt{1, 2, 4};
    std::size_t matched = 0;
    std::size_t allocations = 0;
    {
        const FailingAllocation counter(0);
        matched += cache.peek(prompt).tokens;
        matched += cache.peek(prompt, {.adapter = "a"}).tokens;
        matched += cache.peek(prompt, {.salt = "a"}).tokens;
        allocations = counter.count();
    }
    CHECK(matched == 2 + 3);
    CHECK(allocations == 0);
}

TEST_CASE("an empty prompt matches nothing and is not an error", "[M6]") {
    Cache cache;
    CHECK_FALSE(cache.acquire(Tokens()));
    store(cache, {1, 2});
    CHECK_FALSE(cache.acquire(Tokens()));
    CHECK_FALSE(cache.take({}));
    CHECK(cache.peek(Tokens()).tokens == 0);
    CHECK(cache.store(Tokens(), CountingKv()) == StoreOutcome::empty);
    CHECK(cache.store(Tokens(), CountingKv(), {}, {.salt = "new"}) == StoreOutcome::empty);
    CHECK(cache.size() == 1);
    CHECK(cache.stats().namespaces == 0);
    CHECK(cache.stats().queried_tokens == 0);
    check_audit(cache);
}

// --- Recency and eviction ------------------------------------------------------------------------

TEST_CASE("a prefix that keeps being hit outlives newer arrivals", "[S4][M5]") {
    Cache cache({.max_entries = 3});
    const Tokens kept{1, 2, 3};
    store(cache, kept);
    for (kvstem::Token i = 10; i < 30; ++i) {
        store(cache, {i, i});
        REQUIRE(rows_of(cache.acquire(kept)) == kept);
    }
    CHECK(cache.size() == 3);
    CHECK(cache.stats().evictions == 18);
}

TEST_CASE("the one nobody touched is the one evicted", "[S4]") {
    Cache cache({.max_entries = 3});
    store(cache, {1});
    store(cache, {2});
    store(cache, {3});
    REQUIRE(cache.acquire(Tokens{1}));
    REQUIRE(cache.acquire(Tokens{3}));
    store(cache, {4});
    CHECK(cache.peek(Tokens{2}).tokens == 0);
    for (const kvstem::Token t : {1, 3, 4}) CHECK(cache.peek(Tokens{t}).tokens == 1);
}

TEST_CASE("with nothing ever hit the oldest goes first and the capacity holds", "[S4][S7]") {
    Cache cache({.max_entries = 4});
    for (kvstem::Token i = 0; i < 20; ++i) {
        store(cache, {i, 1, 2});
        CHECK(cache.size() == (i < 4 ? static_cast<std::size_t>(i) + 1 : 4));
        if (i >= 4) CHECK(cache.peek(Tokens{i - 4}).tokens == 0);
        for (kvstem::Token j = i < 3 ? 0 : i - 3; j <= i; ++j) {
            CHECK(cache.peek(Tokens{j}).tokens == 1);
        }
        check_audit(cache);
    }
    CHECK(cache.stats().evictions == 16);
}

TEST_CASE("a hit refreshes the entry that served and not those that only share its tokens",
          "[M5][S4]") {
    Cache cache;
    store(cache, {1, 2});
    store(cache, {1, 2, 3});
    store(cache, {1, 2, 3, 4});
    REQUIRE(rows_of(cache.acquire(Tokens{1, 2, 3})) == Tokens{1, 2, 3});
    REQUIRE(cache.evict());
    CHECK_FALSE(cache.peek(Tokens{1, 2}).has_logits);
    REQUIRE(cache.evict());
    CHECK(cache.peek(Tokens{1, 2, 3, 4}).tokens == 3);
    CHECK(cache.peek(Tokens{1, 2, 3, 4}).has_logits);
}

TEST_CASE("storing is a use", "[S4][S5]") {
    Cache cache({.max_entries = 2});
    store(cache, {1});
    store(cache, {2});
    store(cache, {1});
    store(cache, {3});
    CHECK(cache.peek(Tokens{1}).tokens == 1);
    CHECK(cache.peek(Tokens{2}).tokens == 0);
}

TEST_CASE("evict drops one entry, oldest first, and says when there is none", "[S4]") {
    Cache cache;
    store(cache, {1});
    store(cache, {2}, {.adapter = "a"});
    store(cache, {3});
    CHECK(cache.evict());
    CHECK(cache.peek(Tokens{1}).tokens == 0);
    CHECK(cache.evict());
    CHECK(cache.peek(Tokens{2}, {.adapter = "a"}).tokens == 0);
    CHECK(cache.evict());
    CHECK_FALSE(cache.evict());
    CHECK(cache.stats().evictions == 3);
    CHECK(cache.stats().bytes == 0);
    check_audit(cache);
}

// --- Storing -------------------------------------------------------------------------------------

TEST_CASE("storing the same tokens again replaces the entry", "[S5]") {
    Cache cache;
    CHECK(store(cache, {1, 2, 3}) == StoreOutcome::stored);
    // Another content under the same tokens, to tell the two apart.
    const Logits other{7, 8, 9};
    CHECK(cache.store(Tokens{1, 2, 3}, CountingKv(Tokens{4, 5, 6}), other) ==
          StoreOutcome::replaced);
    CHECK(cache.size() == 1);
    const auto hit = cache.acquire(Tokens{1, 2, 3});
    CHECK(rows_of(hit) == Tokens{4, 5, 6});
    CHECK(hit->logits == other);
    CHECK(cache.stats().stored == 2);
    CHECK(cache.stats().replaced == 1);
    CHECK(cache.stats().evictions == 0);
    CHECK(cache.stats().bytes ==
          3 * CountingKv::bytes_per_position + 3 * sizeof(kvstem::Token) + 3 * sizeof(float));
    check_audit(cache);
}

TEST_CASE("replacing without logits forgets the old logits", "[S5][S3]") {
    Cache cache;
    store(cache, {1, 2});
    cache.store(Tokens{1, 2}, CountingKv(Tokens{1, 2}));
    CHECK_FALSE(cache.peek(Tokens{1, 2}).has_logits);
    CHECK_FALSE(cache.acquire(Tokens{1, 2})->logits);
}

TEST_CASE("replacing in a full cache evicts nothing", "[S5][S7]") {
    const std::size_t entry =
        2 * (CountingKv::bytes_per_position + sizeof(kvstem::Token)) + 2 * sizeof(float);
    Cache cache({.max_entries = 2, .max_bytes = 2 * entry});
    store(cache, {1, 1});
    store(cache, {2, 2});
    CHECK(store(cache, {1, 1}) == StoreOutcome::replaced);
    CHECK(cache.size() == 2);
    CHECK(cache.stats().evictions == 0);
    CHECK(cache.stats().bytes == 2 * entry);
}

TEST_CASE("a capacity of 0 stores nothing", "[S5]") {
    Cache no_entries({.max_entries = 0});
    CHECK(store(no_entries, {1}) == StoreOutcome::too_large);
    CHECK(no_entries.size() == 0);
    CHECK(no_entries.peek(Tokens{1}).tokens == 0);
    Cache no_bytes({.max_bytes = 0});
    CHECK(store(no_bytes, {1}) == StoreOutcome::too_large);
    CHECK(no_bytes.size() == 0);
    CHECK(no_bytes.stats().refused == 1);
    check_audit(no_entries);
    check_audit(no_bytes);
}

TEST_CASE("a snapshot whose length disagrees with its tokens is refused with nothing changed",
          "[S5]") {
    Cache cache({.max_entries = 1});
    store(cache, {1, 2});
    const PrefixCacheStats before = cache.stats();
    CHECK_THROWS_AS(cache.store(Tokens{3, 4, 5}, CountingKv(Tokens{3, 4})),
                    kvstem::InvalidArgument);
    CHECK_THROWS_WITH(cache.store(Tokens{3, 4, 5}, CountingKv(Tokens{3, 4})),
                      ContainsSubstring("2") && ContainsSubstring("3"));
    CHECK_THROWS_AS(cache.store(Tokens(), CountingKv(Tokens{3})), kvstem::InvalidArgument);
    CHECK(cache.size() == 1);
    CHECK(cache.stats().stored == before.stored);
    CHECK(cache.stats().evictions == 0);
    CHECK(cache.stats().bytes == before.bytes);
    CHECK(cache.peek(Tokens{1, 2}).tokens == 2);
    CHECK(cache.peek(Tokens{3}).tokens == 0);
    check_audit(cache);
}

TEST_CASE("storing a const KV copies it once, moving it in copies nothing", "[S7]") {
    Cache cache;
    const CountingKv kv(Tokens{1, 2, 3});
    kv_counts = {};
    cache.store(Tokens{1, 2, 3}, kv);
    CHECK(kv_counts.copies == 1);
    kv_counts = {};
    cache.store(Tokens{1, 2, 4}, CountingKv(Tokens{1, 2, 4}));
    CHECK(kv_counts.copies == 0);
}

TEST_CASE("a refused snapshot is neither copied nor moved from", "[S7]") {
    Cache cache({.max_bytes = 10});
    CountingKv kv(Tokens{1, 2, 3});
    kv_counts = {};
    CHECK(cache.store(Tokens{1, 2, 3}, std::as_const(kv)) == StoreOutcome::too_large);
    CHECK(kv_counts.copies == 0);
    std::optional<Logits> logits = Logits{1, 2};
    CHECK(cache.store(Tokens{1, 2, 3}, std::move(kv), std::move(logits)) ==
          StoreOutcome::too_large);
    CHECK(kv.length() == 3);  // NOLINT(bugprone-use-after-move): the contract is that it was not
    CHECK(logits == Logits{1, 2});
}

TEST_CASE("the entry capacity holds after every store", "[S7]") {
    Cache cache({.max_entries = 2});
    for (kvstem::Token i = 0; i < 10; ++i) {
        store(cache, counted(static_cast<std::size_t>(i) + 1, 5));  // each extends the one before
        CHECK(cache.size() <= 2);
        check_audit(cache);
    }
    CHECK(cache.peek(counted(10, 5)).tokens == 10);
    CHECK(cache.peek(counted(9, 5)).has_logits);
    CHECK_FALSE(cache.peek(counted(8, 5)).has_logits);
}

TEST_CASE("the byte capacity counts side data and refuses what can never fit, evicting nothing",
          "[S7][C35]") {
    const std::size_t limit = 1000;
    const auto with_bytes = [](Cache& cache, kvstem::Token token, std::size_t bytes) {
        // One token; all but its KV and itself is logits.
        const std::size_t logits = bytes - CountingKv::bytes_per_position - sizeof(kvstem::Token);
        return cache.store(Tokens{token}, CountingKv(Tokens{token}),
                           Logits(logits / sizeof(float), 1.0F));
    };
    Cache cache({.max_bytes = limit});
    CHECK(with_bytes(cache, 1, 600) == StoreOutcome::stored);
    CHECK(cache.stats().bytes == 600);
    CHECK(with_bytes(cache, 2, 600) == StoreOutcome::stored);
    CHECK(cache.stats().bytes == 600);
    CHECK(cache.stats().evictions == 1);
    CHECK(with_bytes(cache, 3, 1500) == StoreOutcome::too_large);
    CHECK(cache.stats().bytes == 600);
    CHECK(cache.stats().evictions == 1);
    CHECK(cache.stats().refused == 1);
    CHECK(cache.peek(Tokens{2}).tokens == 1);
    CHECK(with_bytes(cache, 4, limit) == StoreOutcome::stored);  // exactly all of it fits
    CHECK(cache.stats().bytes == limit);
    CHECK(with_bytes(cache, 4, limit + 4) == StoreOutcome::too_large);
    CHECK(cache.peek(Tokens{4}).tokens == 1);
    check_audit(cache);
}

// --- Taking --------------------------------------------------------------------------------------

TEST_CASE("take moves a whole snapshot out and copies nothing", "[S8]") {
    Cache cache;
    store(cache, {1, 2, 3});
    kv_counts = {};
    const auto hit = cache.take(Tokens{1, 2, 3, 4});
    CHECK(rows_of(hit) == Tokens{1, 2, 3});
    CHECK(hit->logits == logits_of({1, 2, 3}));
    CHECK(hit->moved);
    CHECK(kv_counts.copies == 0);
    CHECK(cache.size() == 0);
    CHECK(cache.stats().bytes == 0);
    CHECK(cache.stats().taken == 1);
    CHECK(cache.stats().hits == 1);
    CHECK(cache.stats().evictions == 0);
    check_audit(cache);
}

TEST_CASE("a conversation that takes and stores back never copies a KV", "[S8]") {
    Cache cache;
    Tokens conversation = counted(5);
    store(cache, conversation);
    kv_counts = {};
    for (kvstem::Token turn = 0; turn < 10; ++turn) {
        const std::size_t known = conversation.size();
        conversation = joined(conversation, {100 + turn, 200 + turn});
        auto hit = cache.take(conversation);
        REQUIRE(hit);
        REQUIRE(hit->tokens == known);
        CHECK(hit->moved);
        cache.store(conversation, CountingKv(conversation), logits_of(conversation));
        CHECK(cache.size() == 1);
    }
    CHECK(kv_counts.copies == 0);
    check_audit(cache);
}

TEST_CASE("take copies a match that ends inside a longer sequence, which stays", "[S8]") {
    Cache cache;
    store(cache, {1, 2, 3, 4});
    const auto hit = cache.take(Tokens{1, 2, 9});
    CHECK(rows_of(hit) == Tokens{1, 2});
    CHECK_FALSE(hit->moved);
    CHECK_FALSE(hit->logits);
    CHECK(cache.size() == 1);
    CHECK(cache.peek(Tokens{1, 2, 3, 4}).has_logits);
    CHECK(cache.stats().taken == 0);
}

TEST_CASE("taking an entry leaves those that extend it or branch off it", "[S8]") {
    Cache cache;
    store(cache, {1, 2});
    store(cache, {1, 2, 3});
    store(cache, {1, 2, 4});
    REQUIRE(cache.take(Tokens{1, 2})->moved);
    CHECK(cache.peek(Tokens{1, 2, 3}).has_logits);
    CHECK(cache.peek(Tokens{1, 2, 4}).has_logits);
    CHECK(cache.peek(Tokens{1, 2}).tokens == 2);
    CHECK_FALSE(cache.peek(Tokens{1, 2}).has_logits);
    check_audit(cache);
    REQUIRE(cache.take(Tokens{1, 2, 4})->moved);
    check_audit(cache);
    CHECK(cache.peek(Tokens{1, 2, 3}).has_logits);
}

TEST_CASE("a snapshot that cannot be copied is taken whole or not matched", "[S6][S8]") {
    PrefixCache<MoveOnlyKv> cache;
    store(cache, {1, 2, 3});
    CHECK_FALSE(cache.take(Tokens{1, 2}));
    CHECK(cache.stats().hit_tokens == 0);
    const auto hit = cache.take(Tokens{1, 2, 3, 4});
    CHECK(rows_of(hit) == Tokens{1, 2, 3});
    CHECK(hit->moved);
    CHECK(cache.size() == 0);
    check_audit(cache);
}

// --- KV types ------------------------------------------------------------------------------------

TEST_CASE("a KV that cannot be cut is matched whole or not at all", "[S6]") {
    PrefixCache<WholeKv> cache;
    store(cache, {1, 2, 3, 4});
    CHECK_FALSE(cache.acquire(Tokens{1, 2, 3}));
    CHECK_FALSE(cache.acquire(Tokens{1, 2, 3, 9}));
    CHECK(cache.peek(Tokens{1, 2, 3, 9}).tokens == 0);
    CHECK(rows_of(cache.acquire(Tokens{1, 2, 3, 4, 5})) == Tokens{1, 2, 3, 4});
    store(cache, {1, 2});
    CHECK(rows_of(cache.acquire(Tokens{1, 2, 3, 9})) == Tokens{1, 2});
}

TEST_CASE("a KV whose window has slid serves nothing that branches before", "[S6][C30]") {
    PrefixCache<WindowKv<4>> cache;
    const Tokens ten = counted(10);
    const Tokens branch = joined(counted(6), {900, 901});
    store(cache, ten);
    CHECK_FALSE(cache.acquire(branch));
    const Tokens five = counted(5);
    store(cache, five);
    store(cache, ten);  // the one that cannot serve is the one used last
    const auto hit = cache.acquire(branch);
    CHECK(rows_of(hit) == five);
    CHECK(hit->logits == logits_of(five));
    check_audit(cache);
}

TEST_CASE("a window that has not slid yet is continued where it ends", "[S6][C31]") {
    PrefixCache<WindowKv<8>> cache;
    const Tokens five = counted(5);
    store(cache, five);
    const auto hit = cache.acquire(joined(five, {700}));
    CHECK(rows_of(hit) == five);
    CHECK(hit->logits == logits_of(five));
    CHECK(rows_of(cache.acquire(joined(counted(3), {700}))) == counted(3));
}

TEST_CASE("an entry that ends in the half-matched node is asked, not only the one used last below",
          "[S6][S1]") {
    // One path: 0 … 5 is an entry that can be cut anywhere, 0 … 19 has slid and cannot.
    PrefixCache<WindowKv<8>> cache;
    store(cache, counted(6));
    store(cache, counted(20));
    CHECK(rows_of(cache.acquire(joined(counted(4), {900}))) == counted(4));
}

TEST_CASE("a cut before the branching is compared with what ends or was cut elsewhere",
          "[S6][S1]") {
    PrefixCache<CheckpointKv<4>> cache;
    store(cache, counted(20));
    CHECK(rows_of(cache.acquire(joined(counted(11), {900}))) == counted(8));
    CHECK_FALSE(cache.acquire(joined(counted(3), {900})));
    store(cache, counted(10));  // ends between the checkpoint and the branching: longer than 8
    CHECK(rows_of(cache.acquire(joined(counted(11), {900}))) == counted(10));
    store(cache, counted(8));  // ends at the checkpoint: as long, but with logits
    const auto hit = cache.acquire(joined(counted(9), {900}));
    CHECK(rows_of(hit) == counted(8));
    CHECK(hit->logits == logits_of(counted(8)));
}

TEST_CASE("of several cuts the longest wins, not the one used last", "[S6][S1]") {
    PrefixCache<CutAtKv> cache;
    const auto store_cut = [&](const Tokens& tail, std::size_t cut) {
        const Tokens all = joined(counted(6), tail);
        cache.store(all, CutAtKv(all, cut));
    };
    store_cut({70, 71, 72}, 5);
    store_cut({80, 81}, 3);
    store_cut({70}, 3);
    CHECK(cache.peek(joined(counted(6), {99})).tokens == 5);
    const auto hit = cache.acquire(joined(counted(6), {99}));
    CHECK(rows_of(hit) == counted(5));
}

TEST_CASE("a KV that names a longer cut than it was asked for is cut where it was asked", "[S2]") {
    PrefixCache<CutAtKv> cache;
    const Tokens all = counted(12);
    cache.store(all, CutAtKv(all, 9));
    CHECK(cache.peek(joined(counted(6), {99})).tokens == 6);
    CHECK(rows_of(cache.acquire(joined(counted(6), {99}))) == counted(6));
}

TEST_CASE("of equal cuts the one used last serves, and is used again by that", "[S6][S1][S4]") {
    PrefixCache<CheckpointKv<4>> cache;
    store(cache, joined(counted(6), {70}));
    store(cache, joined(counted(6), {80}));
    CHECK(rows_of(cache.acquire(joined(counted(6), {99}))) == counted(4));
    CHECK(cache.evict());
    CHECK(cache.peek(joined(counted(6), {80})).has_logits);
    CHECK_FALSE(cache.peek(joined(counted(6), {70})).has_logits);
}

TEST_CASE("a branch that lost its newest entry is not the one used last any more", "[S1][S4][S8]") {
    Cache cache;
    store(cache, joined(counted(6), {70, 71}));
    store(cache, joined(counted(6), {80}));
    store(cache, joined(counted(6), {70, 72}));
    CHECK(cache.take(joined(counted(6), {70, 72}))->moved);
    check_audit(cache);
    // {80} was used last of the two that are left, so it serves, and the other is evicted.
    CHECK(rows_of(cache.acquire(joined(counted(6), {99}))) == counted(6));
    CHECK(cache.evict());
    CHECK(cache.peek(joined(counted(6), {80})).has_logits);
    check_audit(cache);
}

TEST_CASE("sizes that cannot be added up are refused and do not wrap", "[S7][R3]") {
    PrefixCache<EnormousKv> cache({.max_bytes = 1000});
    CHECK(cache.store(counted(3), EnormousKv(counted(3))) == StoreOutcome::too_large);
    CHECK(cache.size() == 0);
    CHECK(cache.stats().bytes == 0);
}

TEST_CASE("a KV with a cheap copy of its beginning is neither copied whole nor truncated", "[S2]") {
    PrefixCache<PrefixKv> cache;
    store(cache, counted(1000));
    kv_counts = {};
    CHECK(rows_of(cache.acquire(joined(counted(10), {5000}))) == counted(10));
    CHECK(kv_counts.prefixes == 1);
    CHECK(kv_counts.copies == 0);
    CHECK(kv_counts.truncations == 0);
    CHECK(kv_counts.bytes_copied == 10 * PrefixKv::bytes_per_position);
}

TEST_CASE("a KV with truncate alone is copied and then cut", "[S2]") {
    Cache cache;
    store(cache, counted(100));
    kv_counts = {};
    CHECK(rows_of(cache.acquire(joined(counted(10), {5000}))) == counted(10));
    CHECK(kv_counts.copies == 1);
    CHECK(kv_counts.truncations == 1);
}

TEST_CASE("a KV with a prefix and no copy constructor is acquired through its prefix", "[S6]") {
    PrefixCache<PrefixOnlyKv> cache;
    store(cache, counted(5));
    CHECK(rows_of(cache.acquire(counted(5))) == counted(5));
    CHECK(cache.acquire(counted(5))->logits == logits_of(counted(5)));
    CHECK(rows_of(cache.acquire(counted(3))) == counted(3));
    const auto part = cache.take(counted(3));
    CHECK(rows_of(part) == counted(3));
    CHECK_FALSE(part->moved);
    CHECK(cache.take(counted(6))->moved);
    CHECK(cache.size() == 0);
}

TEST_CASE("a KV that cannot be assigned to is stored, replaced, cut, taken and evicted", "[S5]") {
    PrefixCache<UnassignableKv> cache({.max_entries = 2});
    store(cache, counted(4));
    CHECK(store(cache, counted(4)) == StoreOutcome::replaced);
    CHECK(rows_of(cache.acquire(counted(2))) == counted(2));
    store(cache, counted(4, 50));
    store(cache, counted(4, 60));
    CHECK(cache.size() == 2);
    CHECK(rows_of(cache.take(counted(4, 60))) == counted(4, 60));
    CHECK(cache.evict());
    CHECK(cache.size() == 0);
}

namespace {
/// Says that every cut is fine and then does not cut.
class LyingKv : public CountingRows {
  public:
    using CountingRows::CountingRows;
    void truncate(std::size_t) {}
};
}  // namespace

TEST_CASE("a KV that is not cut to the match is not handed out", "[S2]") {
    PrefixCache<LyingKv> cache;
    cache.store(counted(5), LyingKv(counted(5)));
    CHECK_THROWS_AS(cache.acquire(counted(3)), kvstem::InvalidArgument);
    CHECK(cache.stats().hits == 0);
    CHECK(cache.stats().queried_tokens == 0);
    check_audit(cache);
}

// --- Tokens --------------------------------------------------------------------------------------

namespace {
struct SameHash {
    std::int32_t id = 0;
    friend bool operator==(const SameHash&, const SameHash&) = default;
};
}  // namespace
template <>
struct kvstem::token_hash<SameHash> {
    static std::uint32_t of(const SameHash&) noexcept { return 7; }
};

TEST_CASE("tokens are compared: equal hashes alone match nothing", "[M1][C10]") {
    struct Kv {
        std::size_t n;
        [[nodiscard]] std::size_t length() const noexcept { return n; }
        [[nodiscard]] std::size_t bytes() const noexcept { return n; }
        void truncate(std::size_t to) { n = to; }
    };
    PrefixCache<Kv, SameHash> cache;
    const std::array<SameHash, 3> first{{{1}, {2}, {3}}};
    cache.store(first, Kv{3});
    const std::array<SameHash, 3> other{{{4}, {5}, {6}}};
    CHECK(cache.peek(other).tokens == 0);
    CHECK_FALSE(cache.acquire(other));
    for (std::int32_t i = 10; i < 60; ++i) {
        const std::array<SameHash, 2> more{{{i}, {i}}};
        cache.store(more, Kv{2});
    }
    for (std::int32_t i = 10; i < 60; ++i) {
        const std::array<SameHash, 2> mixed{{{i}, {i + 1}}};
        CHECK(cache.peek(mixed).tokens == 1);
    }
    CHECK(cache.peek(first).tokens == 3);
    CHECK(cache.audit().ok());
}

// --- Counting ------------------------------------------------------------------------------------

TEST_CASE("the statistics count positions, not hits", "[C1]") {
    Cache cache;
    store(cache, counted(10));
    (void)cache.acquire(counted(10));                   // 10 of 10
    (void)cache.acquire(joined(counted(4), {99, 98}));  // 4 of 6
    (void)cache.acquire(Tokens{77});                    // 0 of 1
    const PrefixCacheStats stats = cache.stats();
    CHECK(stats.hits == 2);
    CHECK(stats.misses == 1);
    CHECK(stats.queried_tokens == 17);
    CHECK(stats.hit_tokens == 14);
    CHECK(stats.missed_tokens == 3);
}

TEST_CASE("hit tokens and missed tokens add up to queried tokens after every operation",
          "[C1][C34]") {
    Cache cache({.max_entries = 3});
    std::uint64_t queried = 0;
    for (std::size_t i = 0; i < 60; ++i) {
        const Tokens prompt = joined(counted(i % 7), {static_cast<kvstem::Token>(50 + i % 3)});
        if (i % 3 == 0) store(cache, prompt);
        if (i % 3 == 1) (void)cache.acquire(prompt);
        if (i % 3 == 2) (void)cache.take(prompt);
        if (i % 11 == 10) cache.clear();
        queried += i % 3 == 0 ? 0 : prompt.size();
        const PrefixCacheStats stats = cache.stats();
        CHECK(stats.hit_tokens + stats.missed_tokens == stats.queried_tokens);
        CHECK(stats.queried_tokens == queried);
    }
    CHECK(cache.stats().hit_tokens > 0);
}

TEST_CASE("clear drops the entries and keeps the counters", "[S9]") {
    Cache cache;
    store(cache, {1, 2, 3});
    store(cache, {1, 2, 4});
    store(cache, {1, 2}, {.adapter = "a"});
    (void)cache.acquire(Tokens{1, 2, 3});
    (void)cache.acquire(Tokens{9});
    const PrefixCacheStats before = cache.stats();
    cache.clear();
    const PrefixCacheStats after = cache.stats();
    CHECK(after.entries == 0);
    CHECK(after.bytes == 0);
    CHECK(after.namespaces == 0);
    CHECK(after.hits == before.hits);
    CHECK(after.misses == before.misses);
    CHECK(after.queried_tokens == before.queried_tokens);
    CHECK(after.hit_tokens == before.hit_tokens);
    CHECK(after.stored == before.stored);
    CHECK(after.evictions == before.evictions);
    CHECK(cache.peek(Tokens{1, 2, 3}).tokens == 0);
    CHECK(cache.peek(Tokens{1, 2}, {.adapter = "a"}).tokens == 0);
    check_audit(cache);
    store(cache, {1, 2, 5});
    CHECK(rows_of(cache.acquire(Tokens{1, 2, 3})) == Tokens{1, 2});
    cache.clear();
    cache.clear();
    check_audit(cache);
}

TEST_CASE("what is evicted leaves no memory behind in the index") {
    Cache cache({.max_entries = 8});
    std::size_t settled = 0;
    std::size_t highest = 0;
    for (kvstem::Token i = 0; i < 4000; ++i) {
        store(cache, joined(counted(20), counted(50, 1000 + 100 * (i % 17))));
        store(cache, joined(counted(static_cast<std::size_t>(i % 19) + 1), {-i}));
        const std::size_t bytes = cache.stats().index_bytes;
        if (i < 400) settled = bytes > settled ? bytes : settled;
        highest = bytes > highest ? bytes : highest;
    }
    CHECK(highest <= settled + settled / 2);  // twenty times the tokens came and went since
    check_audit(cache);
}

TEST_CASE("a path of many stored prefixes is evicted and cleared without recursion", "[R3]") {
    Cache cache({.max_entries = 100'000});
    const Tokens all = counted(3000);
    for (std::size_t n = 1; n <= all.size(); ++n) {
        const auto prefix = std::span(all).first(n);
        cache.store(prefix, CountingKv(prefix));
    }
    CHECK(cache.peek(all).tokens == all.size());
    for (int i = 0; i < 1000; ++i) REQUIRE(cache.evict());
    CHECK(cache.peek(std::span(all).first(1000)).tokens == 1000);
    cache.clear();
    CHECK(cache.size() == 0);
    check_audit(cache);
}
