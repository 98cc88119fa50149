// SPDX-License-Identifier: MIT
// The contiguous KV: rows go in whole, come out as they were, and can be cut anywhere.

#include "kvstem/reference/kv.hpp"

#include <cstddef>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "support/reference.hpp"

using namespace kvstem;
using namespace kvstem::reference;
using support::refusal;

namespace {

constexpr KvShape shape{2, 3};

/// Rows of one position of all layers in which every float says where it belongs.
std::vector<float> rows_of(std::size_t position, float sign) {
    std::vector<float> rows;
    for (std::size_t i = 0; i < shape.n_layers * shape.row_size; ++i) {
        rows.push_back(sign * static_cast<float>(position * 100 + i + 1));
    }
    return rows;
}

ContiguousKv kv_of_length(std::size_t n) {
    ContiguousKv kv(shape);
    for (std::size_t p = 0; p < n; ++p) kv.push(rows_of(p, 1.0f), rows_of(p, -1.0f));
    return kv;
}

}  // namespace

TEST_CASE("a KV gives back the rows it was given, per layer and position") {
    const ContiguousKv kv = kv_of_length(5);
    REQUIRE(kv.length() == 5);
    for (std::size_t p = 0; p < 5; ++p) {
        for (std::size_t layer = 0; layer < 2; ++layer) {
            REQUIRE(kv.key(layer, p).size() == 3);
            for (std::size_t i = 0; i < 3; ++i) {
                CHECK(kv.key(layer, p)[i] == rows_of(p, 1.0f)[layer * 3 + i]);
                CHECK(kv.value(layer, p)[i] == rows_of(p, -1.0f)[layer * 3 + i]);
            }
        }
    }
}

TEST_CASE("a KV refuses rows of the wrong size and stays as it was") {
    ContiguousKv kv = kv_of_length(2);
    const std::vector<float> right(6);
    const std::vector<float> shorter(5);
    const std::vector<float> longer(7);
    CHECK_THAT(refusal<InvalidArgument>([&] { kv.push(shorter, right); }),
               ContainsSubstring("key rows of 5 floats, expected 2 x 3"));
    CHECK_THAT(refusal<InvalidArgument>([&] { kv.push(right, longer); }),
               ContainsSubstring("value rows of 7 floats, expected 2 x 3"));
    CHECK(kv == kv_of_length(2));
}

TEST_CASE("a KV refuses layers and positions that are not there") {
    const ContiguousKv kv = kv_of_length(2);
    CHECK_THAT(refusal<InvalidArgument>([&] { (void)kv.key(2, 0); }), ContainsSubstring("layer 2"));
    CHECK_THAT(refusal<InvalidArgument>([&] { (void)kv.value(0, 2); }),
               ContainsSubstring("position 2"));
    CHECK_THAT(refusal<InvalidArgument>([] { ContiguousKv(KvShape{0, 3}); }),
               ContainsSubstring("0 layers"));
    CHECK_THAT(refusal<InvalidArgument>([] { ContiguousKv(KvShape{2, 0}); }),
               ContainsSubstring("0 floats"));
}

TEST_CASE("truncating and copying a prefix at any position give the KV of that length", "[S2]") {
    const ContiguousKv whole = kv_of_length(6);
    for (std::size_t n = 0; n <= 6; ++n) {
        const ContiguousKv prefix = whole.prefix(n);
        ContiguousKv cut = whole;
        cut.truncate(n);
        CHECK(prefix == kv_of_length(n));
        CHECK(cut == kv_of_length(n));
        CHECK(prefix.bytes() == n * 2 * 3 * 2 * sizeof(float));
        CHECK(cut.bytes() == prefix.bytes());
    }
    CHECK(whole == kv_of_length(6));
    CHECK_THAT(refusal<InvalidArgument>([&] { (void)whole.prefix(7); }),
               ContainsSubstring("prefix to 7 positions, only 6"));
    ContiguousKv cut = whole;
    CHECK_THAT(refusal<InvalidArgument>([&] { cut.truncate(7); }),
               ContainsSubstring("truncate to 7 positions, only 6"));
    CHECK(cut == whole);
}

TEST_CASE("rows pushed after a cut replace what was cut off") {
    ContiguousKv kv = kv_of_length(4);
    kv.truncate(2);
    kv.push(rows_of(9, 1.0f), rows_of(9, -1.0f));
    CHECK(kv.length() == 3);
    CHECK(kv.key(1, 2)[0] == rows_of(9, 1.0f)[3]);
    CHECK(kv != kv_of_length(3));
}

TEST_CASE("equality of KVs is equality of bits") {
    const std::vector<float> nan(6, std::numeric_limits<float>::quiet_NaN());
    const std::vector<float> zero(6, 0.0f);
    const std::vector<float> minus_zero(6, -0.0f);
    ContiguousKv a(shape);
    ContiguousKv b(shape);
    CHECK(a == b);
    a.push(nan, nan);
    b.push(nan, nan);
    CHECK(a == b);
    a.push(zero, zero);
    b.push(zero, minus_zero);
    CHECK(a != b);
    CHECK(a.prefix(1) == b.prefix(1));
    CHECK(a != a.prefix(1));
    CHECK(ContiguousKv(KvShape{2, 3}) != ContiguousKv(KvShape{3, 2}));
}

TEST_CASE("slots do not count before they are committed") {
    ContiguousKv kv = kv_of_length(2);
    kv.reserve(2);
    CHECK(kv.length() == 2);
    CHECK(kv == kv_of_length(2));
    CHECK(kv.bytes() == kv_of_length(2).bytes());
    CHECK_THROWS_AS(kv.key(0, 2), InvalidArgument);
    CHECK_THROWS_AS(kv.key_slot(0, 1), InvalidArgument);
    CHECK_THROWS_AS(kv.value_slot(0, 4), InvalidArgument);
    kv.key_slot(1, 2)[0] = 5.0f;
    kv.commit(1);
    CHECK(kv.length() == 3);
    CHECK(kv.key(1, 2)[0] == 5.0f);
    CHECK_THROWS_AS(kv.key_slot(0, 2), InvalidArgument);
    CHECK_THROWS_AS(kv.reserve(std::numeric_limits<std::size_t>::max()), InvalidArgument);
    CHECK(kv.length() == 3);
}

TEST_CASE("a KV is copied whole and moved without throwing") {
    STATIC_REQUIRE(std::is_nothrow_move_constructible_v<ContiguousKv>);
    STATIC_REQUIRE(std::is_nothrow_move_assignable_v<ContiguousKv>);
    STATIC_REQUIRE(noexcept(std::declval<const ContiguousKv&>().length()));
    STATIC_REQUIRE(noexcept(std::declval<const ContiguousKv&>().bytes()));
    ContiguousKv a = kv_of_length(3);
    const ContiguousKv b = a;
    ContiguousKv c = std::move(a);
    CHECK(b == c);
    CHECK(a.length() == 0);  // NOLINT: what a moved-from KV is, is part of its contract
    CHECK(a.shape().n_layers == 0);
    a = b;
    CHECK(a == b);
    c = std::move(a);
    CHECK(c == b);
    CHECK(a.length() == 0);  // NOLINT
}
