// SPDX-License-Identifier: MIT
// kv_traits: members are found, and a type one does not own is cached through a specialisation.

#include "kvstem/kv_traits.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "kvstem/prefix_cache.hpp"
#include "support/archetypes.hpp"

using namespace kvstem_test;

namespace {

/// As an engine might define it: plain data, no member of the names that are looked for.
struct ForeignState {
    std::vector<std::int32_t> past;
};

/// Lengths need not be std::size_t.
struct NarrowKv {
    int positions = 0;
    [[nodiscard]] int length() const noexcept { return positions; }
    [[nodiscard]] unsigned bytes() const noexcept { return 4; }
    void truncate(std::size_t n) { positions = static_cast<int>(n); }
};

}  // namespace

template <>
struct kvstem::kv_traits<ForeignState> {
    static std::size_t length(const ForeignState& kv) noexcept { return kv.past.size(); }
    static std::size_t bytes(const ForeignState& kv) noexcept { return kv.past.size() * 4; }
    static ForeignState prefix(const ForeignState& kv, std::size_t n) {
        return {{kv.past.begin(), kv.past.begin() + static_cast<std::ptrdiff_t>(n)}};
    }
};

TEST_CASE("the primary traits forward to the members of a KV type") {
    using Traits = kvstem::kv_traits<PrefixKv>;
    PrefixKv kv(counted(5));
    CHECK(Traits::length(kv) == 5);
    CHECK(Traits::bytes(kv) == 5 * PrefixKv::bytes_per_position);
    CHECK(Traits::prefix(kv, 2).rows() == counted(2));
    Traits::truncate(kv, 3);
    CHECK(kv.rows() == counted(3));
    CHECK(kvstem::kv_traits<WindowKv<4>>::longest_cut(WindowKv<4>(counted(10)), 6) == 0);
    CHECK(kvstem::kv_traits<CheckpointKv<4>>::longest_cut(CheckpointKv<4>(counted(10)), 6) == 4);
}

TEST_CASE("a type of which one owns nothing is cached through a specialisation") {
    kvstem::PrefixCache<ForeignState> cache;
    const Tokens tokens = counted(6);
    cache.store(tokens, ForeignState{tokens});
    const auto hit = cache.acquire(joined(counted(4), {99}));
    REQUIRE(hit);
    CHECK(hit->kv.past == counted(4));
    CHECK(cache.stats().bytes == 6 * 4 + 6 * sizeof(kvstem::Token));
}

TEST_CASE("a length of another integer type is accepted") {
    kvstem::PrefixCache<NarrowKv> cache;
    cache.store(counted(6), NarrowKv{6});
    CHECK(cache.acquire(counted(4))->kv.positions == 4);
    CHECK_THROWS_AS(cache.store(counted(6), NarrowKv{7}), kvstem::InvalidArgument);
}
