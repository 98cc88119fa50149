// SPDX-License-Identifier: MIT
// Namespaces never share, whatever their strings are.

#include "kvstem/namespace.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "catch.hpp"
#include "kvstem/detail/namespace_table.hpp"
#include "kvstem/prefix_cache.hpp"
#include "support/counting_kv.hpp"

using kvstem::Namespace;
using kvstem::detail::NamespaceTable;
using namespace kvstem_test;
using namespace std::string_view_literals;

namespace {

using Cache = kvstem::PrefixCache<CountingKv>;

/// Pairwise different namespaces that a careless key would mix up.
std::vector<Namespace> look_alikes() {
    return {
        {},
        {.adapter = ""},
        {.version = ""},
        {.salt = ""},
        {.adapter = "", .version = ""},
        {.adapter = "", .salt = ""},
        {.adapter = "", .version = "", .salt = ""},
        {.adapter = "X"},
        {.version = "X"},
        {.salt = "X"},
        {.adapter = "x"},
        {.adapter = "a", .version = "bc"},
        {.adapter = "ab", .version = "c"},
        {.adapter = "abc"},
        {.adapter = "abc", .version = ""},
        {.adapter = "", .version = "abc"},
        {.adapter = "a", .salt = "bc"},
        {.adapter = "ab", .salt = "c"},
        {.version = "a", .salt = "bc"},
        {.version = "ab", .salt = "c"},
        {.salt = "\0"sv},
        {.salt = "\0\0"sv},
        {.adapter = "\1\0\0\0\0\0\0\0\0"sv},
        {.adapter = "legal-lora", .version = "1"},
        {.adapter = "legal-lora", .version = "2"},
    };
}

Tokens stored_in(std::size_t i) {
    return {1, 2, 3, static_cast<kvstem::Token>(100 + i)};
}

}  // namespace

TEST_CASE("a namespace finds only what was stored in it", "[M7][C11]") {
    const auto names = look_alikes();
    for (std::size_t i = 0; i < names.size(); ++i) {
        Cache cache;
        cache.store(Tokens{1, 2, 3}, CountingKv(Tokens{1, 2, 3}), {}, names[i]);
        for (std::size_t j = 0; j < names.size(); ++j) {
            CAPTURE(i, j);
            CHECK(cache.peek(Tokens{1, 2, 3}, names[j]).tokens == (i == j ? 3 : 0));
        }
    }
}

TEST_CASE("all namespaces hold the same tokens side by side", "[M7][C11]") {
    const auto names = look_alikes();
    Cache cache;
    for (std::size_t i = 0; i < names.size(); ++i) {
        cache.store(stored_in(i), CountingKv(stored_in(i)), {}, names[i]);
    }
    CHECK(cache.stats().namespaces == names.size() - 1);
    CHECK(cache.audit().ok());
    for (std::size_t i = 0; i < names.size(); ++i) {
        for (std::size_t j = 0; j < names.size(); ++j) {
            CHECK(cache.peek(stored_in(i), names[j]).tokens == (i == j ? 4 : 3));
        }
    }
}

TEST_CASE("dropping a namespace drops it alone and says how many entries it had", "[M7]") {
    const auto names = look_alikes();
    Cache cache;
    for (std::size_t i = 0; i < names.size(); ++i) {
        cache.store(stored_in(i), CountingKv(stored_in(i)), {}, names[i]);
        cache.store(Tokens{1, 2}, CountingKv(Tokens{1, 2}), {}, names[i]);
    }
    for (std::size_t i = 0; i < names.size(); ++i) {
        CHECK(cache.drop(names[i]) == 2);
        CHECK(cache.drop(names[i]) == 0);
        CHECK(cache.size() == 2 * (names.size() - 1 - i));
        CHECK(cache.audit().ok());
        for (std::size_t j = 0; j < names.size(); ++j) {
            CHECK(cache.peek(stored_in(j), names[j]).tokens == (j > i ? 4 : 0));
        }
    }
    CHECK(cache.stats().namespaces == 0);
    CHECK(cache.stats().evictions == 0);
}

TEST_CASE("dropping a namespace that was never used does nothing", "[M7]") {
    Cache cache;
    CHECK(cache.drop({.adapter = "never"}) == 0);
    CHECK(cache.drop({}) == 0);
    CHECK(cache.stats().namespaces == 0);
}

TEST_CASE("looking up in an unknown namespace does not create it", "[M7][M6]") {
    Cache cache;
    CHECK_FALSE(cache.acquire(Tokens{1}, {.salt = "tenant"}));
    CHECK_FALSE(cache.take(Tokens{1}, {.salt = "tenant"}));
    CHECK(cache.peek(Tokens{1}, {.salt = "tenant"}).tokens == 0);
    CHECK(cache.stats().namespaces == 0);
}

TEST_CASE("a namespace goes with its last entry, by eviction and by take", "[M7]") {
    Cache cache;
    cache.store(Tokens{1}, CountingKv(Tokens{1}), {}, {.adapter = "a"});
    cache.store(Tokens{1}, CountingKv(Tokens{1}), {}, {.adapter = "b"});
    CHECK(cache.stats().namespaces == 2);
    REQUIRE(cache.evict());
    CHECK(cache.stats().namespaces == 1);
    CHECK(cache.take(Tokens{1}, {.adapter = "b"}));
    CHECK(cache.stats().namespaces == 0);
    CHECK(cache.audit().ok());
}

TEST_CASE("one capacity serves all namespaces", "[M7][S7]") {
    Cache cache({.max_entries = 2});
    cache.store(Tokens{1}, CountingKv(Tokens{1}));
    cache.store(Tokens{2}, CountingKv(Tokens{2}), {}, {.adapter = "a"});
    cache.store(Tokens{3}, CountingKv(Tokens{3}), {}, {.adapter = "b"});
    CHECK(cache.size() == 2);
    CHECK(cache.peek(Tokens{1}).tokens == 0);
    CHECK(cache.peek(Tokens{2}, {.adapter = "a"}).tokens == 1);
}

TEST_CASE("the strings of a namespace are not kept", "[M7]") {
    Cache cache;
    {
        std::string tenant = "a tenant's name that is too long to be stored inline";
        cache.store(Tokens{1}, CountingKv(Tokens{1}), {}, {.salt = tenant});
        tenant.assign(tenant.size(), '#');
    }
    const std::string same = "a tenant's name that is too long to be stored inline";
    CHECK(cache.peek(Tokens{1}, {.salt = same}).tokens == 1);
}

TEST_CASE("namespaces whose hashes are equal are told apart", "[M7][C10]") {
    // Hashes have 32 bits: of so many names about ten pairs share one, five of them by salt alone.
    constexpr std::uint32_t names = 200'000;
    NamespaceTable table;
    const auto number = [](std::uint32_t i) { return std::to_string(i); };
    for (std::uint32_t i = 0; i < names; ++i) table.add({.salt = number(i)}, i + 1);
    for (std::uint32_t i = 0; i < names; ++i) table.add({.adapter = number(i)}, names + i + 1);
    std::uint32_t wrong = 0;
    for (std::uint32_t i = 0; i < names; ++i) {
        wrong += table.find({.salt = number(i)}) != i + 1 ? 1 : 0;
        wrong += table.find({.adapter = number(i)}) != names + i + 1 ? 1 : 0;
    }
    CHECK(wrong == 0);
}

TEST_CASE("the table of namespaces agrees with a map over random additions and removals", "[M7]") {
    using Parts = std::vector<std::optional<std::string>>;
    const auto name_of = [](const Parts& parts) {
        return Namespace{.adapter = parts[0], .version = parts[1], .salt = parts[2]};
    };
    NamespaceTable table;
    std::map<Parts, std::pair<std::uint32_t, std::uint32_t>> model;  // number, root
    std::mt19937 random(7);
    for (std::uint32_t step = 1; step <= 6000; ++step) {
        Parts parts(3);
        for (auto& part : parts) {
            if (random() % 3 != 0) part = std::string(random() % 4, "ab"[random() % 2]);
        }
        const auto found = model.find(parts);
        CHECK(table.find(name_of(parts)) == (found == model.end() ? 0 : found->second.second));
        const bool growing = step / 500 % 2 == 0;
        if (found == model.end() && (growing || random() % 4 == 0)) {
            model[parts] = {table.add(name_of(parts), step), step};
        } else if (found != model.end() && (!growing || random() % 4 == 0)) {
            table.remove(found->second.first);
            model.erase(found);
        } else if (found != model.end()) {
            const Namespace there = table.name_of(found->second.first);
            CHECK(there.adapter == name_of(parts).adapter);
            CHECK(there.version == name_of(parts).version);
            CHECK(there.salt == name_of(parts).salt);
        }
        REQUIRE(table.size() == model.size());
    }
}
