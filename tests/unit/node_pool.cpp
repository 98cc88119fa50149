// SPDX-License-Identifier: MIT
// NodePool against a map, through peaks and declines.

#include "kvstem/detail/node_pool.hpp"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "support/fail_allocation.hpp"

using kvstem_test::with_failing_allocation;

namespace {

using Pool = kvstem::detail::NodePool<std::uint64_t, std::uint32_t>;

}  // namespace

TEST_CASE("ids start at 1 and are distinct while they are taken") {
    Pool pool;
    std::map<std::uint32_t, int> seen;
    for (int i = 0; i < 5000; ++i) {
        const std::uint32_t id = pool.take();
        CHECK(id != 0);
        CHECK(id < pool.end_id());
        CHECK(++seen[id] == 1);
    }
    CHECK(pool.live() == 5000);
}

TEST_CASE("records keep their content and their place while the pool grows and shrinks") {
    const auto seed = GENERATE(1U, 2U, 3U);
    std::mt19937 random(seed);
    Pool pool;
    struct Taken {
        std::uint64_t hot;
        std::uint32_t cold;
        const std::uint64_t* place;
    };
    std::map<std::uint32_t, Taken> model;
    for (int step = 0; step < 40000; ++step) {
        const bool growing = step / 8000 % 2 == 0;
        if (model.empty() || random() % 10 < (growing ? 8U : 2U)) {
            const std::uint32_t id = pool.take();
            REQUIRE(model.count(id) == 0);
            pool[id] = random();
            pool.cold(id) = static_cast<std::uint32_t>(random());
            model[id] = {pool[id], pool.cold(id), &pool[id]};
        } else {
            auto victim = model.lower_bound(static_cast<std::uint32_t>(random() % pool.end_id()));
            if (victim == model.end()) victim = model.begin();
            pool.give(victim->first);
            model.erase(victim);
        }
        REQUIRE(pool.live() == model.size());
        if (step % 997 != 0) continue;
        for (const auto& entry : model) {
            REQUIRE(pool.has_storage(entry.first));
            REQUIRE(pool[entry.first] == entry.second.hot);
            REQUIRE(pool.cold(entry.first) == entry.second.cold);
            REQUIRE(&pool[entry.first] == entry.second.place);
        }
    }
}

TEST_CASE("after a peak the segments go back, whatever ids remain in the lowest ones") {
    Pool pool;
    std::vector<std::uint32_t> ids;
    for (int i = 0; i < 20000; ++i) ids.push_back(pool.take());
    const std::size_t peak = pool.bytes();
    for (std::size_t i = 100; i < ids.size(); ++i) pool.give(ids[i]);
    CHECK(pool.bytes() < peak / 10);
    CHECK_FALSE(pool.has_storage(ids.back()));
    CHECK(pool.has_storage(ids.front()));
    // Ids that come back are read as never taken: their records are zero again.
    for (int i = 0; i < 5000; ++i) {
        const std::uint32_t id = pool.take();
        if (id >= 2 * Pool::segment_slots) CHECK(pool[id] == 0);
    }
}

TEST_CASE("the lowest ids are taken first, so that a smaller pool becomes a compact one") {
    Pool pool;
    std::vector<std::uint32_t> ids;
    // More segments than a word of the list of those with room has bits.
    for (int i = 0; i < 70'000; ++i) ids.push_back(pool.take());
    for (const std::uint32_t id : ids) {
        if (id % 2 == 0) pool.give(id);
    }
    for (int i = 0; i < 400; ++i) CHECK(pool.take() < Pool::segment_slots);
}

TEST_CASE("a pool without memory says so and has changed nothing", "[R1]") {
    Pool pool;
    std::map<std::uint32_t, std::uint64_t> model;
    std::size_t fired = 0;
    for (std::uint64_t i = 0; i < 3000; ++i) {
        for (std::size_t n = 1; n < 5; ++n) {
            const std::size_t live = pool.live();
            const auto outcome = with_failing_allocation(n, [&] { pool.give(pool.take()); });
            REQUIRE(outcome.threw == outcome.fired);
            REQUIRE(pool.live() == live);
            if (!outcome.fired) break;
            ++fired;
        }
        const std::uint32_t id = pool.take();
        REQUIRE(model.count(id) == 0);
        pool[id] = i;
        model[id] = i;
    }
    CHECK(fired >= 3);
    for (const auto& entry : model) CHECK(pool[entry.first] == entry.second);
}
