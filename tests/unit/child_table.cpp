// SPDX-License-Identifier: MIT
// ChildTable against a multimap, while it grows, shrinks and stands still.

#include "kvstem/detail/child_table.hpp"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "catch.hpp"
#include "support/fail_allocation.hpp"

using kvstem::detail::ChildTable;
using kvstem_test::FailingAllocation;
using kvstem_test::with_failing_allocation;

namespace {

using Model = std::multimap<std::uint32_t, std::uint32_t>;

/// All ids the table offers for a hash.
std::multiset<std::uint32_t> offered(const ChildTable& table, std::uint32_t hash) {
    std::multiset<std::uint32_t> ids;
    const std::uint32_t found = table.find(hash, [&](std::uint32_t id) {
        ids.insert(id);
        return false;
    });
    CHECK(found == 0);
    return ids;
}

std::multiset<std::uint32_t> expected(const Model& model, std::uint32_t hash) {
    std::multiset<std::uint32_t> ids;
    for (auto [i, end] = model.equal_range(hash); i != end; ++i) ids.insert(i->second);
    return ids;
}

bool agrees(const ChildTable& table, const Model& model) {
    if (table.size() != model.size()) return false;
    for (auto i = model.begin(); i != model.end(); i = model.upper_bound(i->first)) {
        if (offered(table, i->first) != expected(model, i->first)) return false;
    }
    return true;
}

void add(ChildTable& table, Model& model, std::uint32_t hash, std::uint32_t id) {
    table.reserve_one();
    table.insert(hash, id);
    model.emplace(hash, id);
}

/// Random operations in phases of growth and decline; hashes from `hash_of(random number)`.
template <class HashOf>
void compare_with_multimap(unsigned seed, std::size_t steps, HashOf hash_of) {
    std::mt19937 random(seed);
    ChildTable table;
    Model model;
    std::uint32_t next_id = 1;
    const auto any = [&] {
        auto i = model.lower_bound(hash_of(random()));
        return i == model.end() ? model.begin() : i;
    };
    for (std::size_t step = 0; step < steps; ++step) {
        const bool growing = step / (steps / 6) % 2 == 0;
        const std::size_t dice = random() % 10;
        if (model.empty() || dice < (growing ? 6U : 2U)) {
            add(table, model, hash_of(random()), next_id++);
        } else if (dice < 8) {
            const auto victim = any();
            table.erase(victim->first, victim->second);
            model.erase(victim);
        } else {
            const auto renamed = any();
            table.replace(renamed->first, renamed->second, next_id);
            renamed->second = next_id++;
        }
        const std::uint32_t hash = hash_of(random());
        REQUIRE(offered(table, hash) == expected(model, hash));
        if (step % 512 == 0) REQUIRE(agrees(table, model));
    }
    CHECK(agrees(table, model));
    while (!model.empty()) {
        table.erase(model.begin()->first, model.begin()->second);
        model.erase(model.begin());
        if (model.size() % 256 == 0) REQUIRE(agrees(table, model));
    }
    CHECK(table.size() == 0);
}

}  // namespace

TEST_CASE("an empty child table finds nothing") {
    const ChildTable table;
    CHECK(table.find(7, [](std::uint32_t) { return true; }) == 0);
    CHECK(table.size() == 0);
    CHECK(table.bytes() == 0);
}

TEST_CASE("the child table agrees with a multimap: hashes over the whole range") {
    const auto seed = GENERATE(1U, 2U, 3U);
    compare_with_multimap(seed, 12000, [](auto n) { return static_cast<std::uint32_t>(n); });
}

TEST_CASE("the child table agrees with a multimap: few hashes, many ids each") {
    const auto seed = GENERATE(4U, 5U);
    compare_with_multimap(seed, 3000,
                          [](auto n) { return static_cast<std::uint32_t>(n % 8) * 0x2000'0000U; });
}

TEST_CASE("the child table agrees with a multimap: all homes at the end, so that clusters wrap") {
    const auto seed = GENERATE(6U, 7U);
    compare_with_multimap(
        seed, 3000, [](auto n) { return 0xFFFF'FFFFU - static_cast<std::uint32_t>(n % 5000); });
}

TEST_CASE("find asks about every candidate of a hash until one is accepted") {
    ChildTable table;
    Model model;
    for (std::uint32_t id = 1; id <= 20; ++id) add(table, model, 99, id);
    for (std::uint32_t id = 1; id <= 20; ++id) {
        CHECK(table.find(99, [id](std::uint32_t candidate) { return candidate == id; }) == id);
    }
    CHECK(table.find(98, [](std::uint32_t) { return true; }) == 0);
}

TEST_CASE("a child table that shrinks gives its memory back") {
    ChildTable table;
    Model model;
    std::mt19937 random(1);
    for (std::uint32_t id = 1; id <= 50000; ++id) {
        add(table, model, static_cast<std::uint32_t>(random()), id);
    }
    const std::size_t peak = table.bytes();
    CHECK(peak < 50000 * 8 * 4);
    while (model.size() > 100) {
        table.erase(model.begin()->first, model.begin()->second);
        model.erase(model.begin());
    }
    CHECK(agrees(table, model));
    CHECK(table.bytes() < peak / 20);
}

TEST_CASE("after reserve_one an insertion allocates nothing, also while the table is resized") {
    ChildTable table;
    for (std::uint32_t id = 1; id <= 20000; ++id) {
        table.reserve_one();
        std::size_t allocations = 0;
        {
            const FailingAllocation counter(0);
            table.insert(id * 2654435761U, id);
            allocations = counter.count();
        }
        REQUIRE(allocations == 0);
    }
    CHECK(table.size() == 20000);
}

TEST_CASE("a child table without memory to grow says so and has changed nothing", "[R1]") {
    ChildTable table;
    Model model;
    std::size_t fired = 0;
    for (std::uint32_t id = 1; id <= 3000; ++id) {
        const auto outcome = with_failing_allocation(1, [&] { table.reserve_one(); });
        REQUIRE(outcome.threw == outcome.fired);
        REQUIRE(table.size() == model.size());
        fired += outcome.fired ? 1 : 0;
        add(table, model, id * 2654435761U, id);
    }
    CHECK(fired > 5);
    CHECK(agrees(table, model));
}

TEST_CASE("a child table without memory to shrink stays as it is", "[R1]") {
    ChildTable table;
    Model model;
    for (std::uint32_t id = 1; id <= 3000; ++id) add(table, model, id * 2654435761U, id);
    const std::size_t bytes = table.bytes();
    std::size_t fired = 0;
    while (model.size() > 10) {
        const auto outcome = with_failing_allocation(
            1, [&] { table.erase(model.begin()->first, model.begin()->second); });
        fired += outcome.fired ? 1 : 0;
        model.erase(model.begin());
    }
    CHECK(fired > 0);
    CHECK(table.bytes() <= bytes);
    CHECK(agrees(table, model));
}
