// SPDX-License-Identifier: MIT
// What policies are made of: the concept, the heap of leaves, hints, and memory that runs out.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "kvstem/detail/key_fifo.hpp"
#include "kvstem/policy/fifo.hpp"
#include "kvstem/policy/hazard.hpp"
#include "kvstem/policy/leaf_heap.hpp"
#include "kvstem/policy/length_aware.hpp"
#include "kvstem/policy/lfu.hpp"
#include "kvstem/policy/lfu_aging.hpp"
#include "kvstem/policy/lru.hpp"
#include "kvstem/policy/offline.hpp"
#include "kvstem/policy/policy.hpp"
#include "kvstem/policy/priority.hpp"
#include "kvstem/policy/s3_fifo.hpp"
#include "kvstem/policy/slru.hpp"
#include "kvstem/radix_cache.hpp"
#include "kvstem/reference/random.hpp"
#include "support/fail_allocation.hpp"
#include "support/token_rows.hpp"

using namespace kvstem_test;
using kvstem::no_node;
using kvstem::NodeId;
using kvstem::RadixCache;

static_assert(kvstem::eviction_policy<kvstem::LeastRecentlyUsed>);
static_assert(kvstem::eviction_policy<kvstem::FirstInFirstOut>);
static_assert(kvstem::eviction_policy<kvstem::LeastFrequentlyUsed>);
static_assert(kvstem::eviction_policy<kvstem::FrequencyWithAgeing>);
static_assert(kvstem::eviction_policy<kvstem::LengthAware>);
static_assert(kvstem::eviction_policy<kvstem::SegmentedLru>);
static_assert(kvstem::eviction_policy<kvstem::S3Fifo>);
static_assert(kvstem::eviction_policy<kvstem::PriorityThenRecency<>>);
static_assert(kvstem::eviction_policy<kvstem::Hazard>);
static_assert(kvstem::eviction_policy<kvstem::OfflineOptimum>);
static_assert(!kvstem::eviction_policy<int>);

namespace {

/// LeastRecentlyUsed, but for one call that could throw.
struct ThrowingVictim : kvstem::LeastRecentlyUsed {
    NodeId victim(auto& nodes) { return kvstem::LeastRecentlyUsed::victim(nodes); }
};
static_assert(!kvstem::eviction_policy<ThrowingVictim>);

// A lease keeps nothing for a policy that wants nothing kept.
static_assert(std::is_empty_v<kvstem::request_data<kvstem::LeastRecentlyUsed>>);

/// LeastRecentlyUsed, but for requests that can be made to fail.
struct Switched : kvstem::LeastRecentlyUsed {
    bool* refuse;
    explicit Switched(bool& it) : refuse(&it) {}
    void request(auto& /*nodes*/, const auto& /*info*/) const {
        if (*refuse) throw std::bad_alloc();
    }
};

/// LeastRecentlyUsed, but for nodes being pinned one by one.
struct OneByOne : kvstem::LeastRecentlyUsed {
    std::size_t pins = 0;
    void pinned(auto& nodes, NodeId node) noexcept {
        ++pins;
        kvstem::LeastRecentlyUsed::pinned(nodes, node);
    }
};

struct Item {
    int key = 0;
    kvstem::HeapLinks heap;
};
struct ByKey {
    static bool before(const Item& a, const Item& b) noexcept { return a.key < b.key; }
    static kvstem::HeapLinks& links(Item& item) noexcept { return item.heap; }
};
struct Items {
    std::vector<Item> items;
    Item& order(NodeId node) noexcept { return items[static_cast<std::size_t>(node)]; }
};

}  // namespace

TEST_CASE("the heap of leaves gives the same first as an ordered set") {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        kvstem::reference::SplitMix64 random(seed);
        Items items{std::vector<Item>(100)};
        kvstem::LeafHeap<ByKey> heap;
        std::set<std::pair<int, NodeId>> set;
        for (int step = 0; step < 2000; ++step) {
            const NodeId node{static_cast<std::uint32_t>(1 + random.next() % 99)};
            Item& item = items.order(node);
            if (item.heap.in_heap()) {
                heap.remove(items, node);
                set.erase({item.key, node});
            } else if (step % 3 != 0 || random.next() % 2 == 0) {
                item.key = static_cast<int>(random.next() % 1000);
                heap.insert(items, node);
                set.insert({item.key, node});
            }
            CHECK(heap.empty() == set.empty());
            if (set.empty()) continue;
            CHECK(items.order(heap.top()).key == set.begin()->first);
            if (random.next() % 5 != 0) continue;
            const NodeId first = heap.top();
            heap.remove(items, first);
            set.erase({items.order(first).key, first});
        }
        while (!set.empty()) {
            const NodeId first = heap.top();
            REQUIRE(items.order(first).key == set.begin()->first);
            heap.remove(items, first);
            set.erase({items.order(first).key, first});
        }
        CHECK(heap.top() == no_node);
    }
}

TEST_CASE("a key queue remembers the last so many keys, each once") {
    kvstem::reference::SplitMix64 random(4);
    for (const std::size_t capacity : {0u, 1u, 7u, 40u}) {
        kvstem::detail::KeyFifo queue(capacity);
        std::vector<std::uint64_t> model;  // 0: taken, its place ages with the others
        for (int step = 0; step < 3000; ++step) {
            const std::uint64_t key = (1 + random.next() % 60) * 64;  // many meet in one slot
            const auto found = std::find(model.begin(), model.end(), key);
            if (random.next() % 3 == 0) {
                REQUIRE(queue.take(key) == (found != model.end()));
                if (found != model.end()) *found = 0;
            } else {
                queue.add(key);
                if (found == model.end()) model.push_back(key);
                if (model.size() > capacity) model.erase(model.begin());
            }
        }
    }
}

TEST_CASE("a priority holds until a clock of the caller's says so") {
    struct Milliseconds {
        const std::uint64_t* now;
        std::uint64_t operator()() const noexcept { return *now; }
    };
    std::uint64_t now = 1'000;
    using Policy = kvstem::PriorityThenRecency<Milliseconds>;
    RadixCache<PagePool, Policy> cache({.page_tokens = 2}, PagePool(20),
                                       Policy(Milliseconds{&now}));
    const auto publish = [&](const Tokens& prompt, std::vector<kvstem::Retention> wanted) {
        auto acquired = cache.acquire(prompt, {}, {.retention = wanted});
        acquired.lease.wrote(std::span(prompt).subspan(acquired.lease.adopted()));
        acquired.lease.publish();
    };
    const auto cached = [&](const Tokens& prompt) { return cache.peek(prompt).cached_tokens; };
    publish({1, 1, 1, 1}, {{.end_token = 2, .priority = 90, .duration = 500},
                           {.first_token = 2, .priority = 10}});
    publish({2, 2}, {});
    publish({3, 3}, {{.priority = 100}});
    CHECK(cache.evict(1) == 1);
    CHECK(cached({1, 1, 1, 1}) == 2);  // its second page has the lowest priority
    CHECK(cache.evict(1) == 1);
    CHECK(cached({2, 2}) == 0);  // the default is 35
    publish({4, 4}, {});
    now += 500;  // what is left of the first prompt falls back to 35, and is older
    CHECK(cache.evict(1) == 1);
    CHECK(cached({1, 1}) == 0);
    CHECK(cache.evict(1) == 1);
    CHECK(cached({4, 4}) == 0);
    CHECK(cached({3, 3}) == 2);

    const std::vector<kvstem::Retention> too_high{{.priority = 101}};
    CHECK_THROWS_AS(cache.acquire(Tokens{5}, {}, {.retention = too_high}), kvstem::InvalidArgument);
    CHECK(cache.stats().leases == 0);
    CHECK(cache.audit().ok());
}

namespace {

/// Every allocation of a request and of a publication fails once; nothing must have changed then,
/// and the policy must go on as if nothing had been tried. Returns how many failures there were.
template <class Policy>
std::size_t fail_every_allocation() {
    std::size_t failures = 0;
    const std::vector<kvstem::Retention> wanted(3);
    for (std::size_t n = 1;; ++n) {
        RadixCache<PagePool, Policy> cache({.page_tokens = 2}, PagePool(200));
        publish_prompt(cache, Tokens{1, 2, 3, 4, 5, 6, 7, 8});
        publish_prompt(cache, Tokens{1, 2, 3, 4, 9, 9});
        typename RadixCache<PagePool, Policy>::Lease lease;
        const Tokens prompt(150, 1);  // more than any policy has room for yet
        bool failed = false;
        const auto attempt = [&](auto action) {
            const auto before = std::tuple(cache.cached_pages(), cache.free_pages(),
                                           cache.stats().nodes, cache.stats().published_pages);
            const AllocationOutcome outcome = with_failing_allocation(failed ? 0 : n, action);
            CHECK(outcome.fired == outcome.threw);
            if (!outcome.fired) return;
            failed = true;
            ++failures;
            CHECK(before == std::tuple(cache.cached_pages(), cache.free_pages(),
                                       cache.stats().nodes, cache.stats().published_pages));
            CHECK(cache.audit().ok());
            action();
        };
        attempt([&] { lease = cache.acquire(prompt, {}, {.tag = 3, .retention = wanted}).lease; });
        if (!failed) {
            lease.wrote(prompt);
            attempt([&] { lease.publish(); });
        }
        // The middle of a node is matched: it is cut, and put together again if that fails.
        if (!failed) {
            attempt([&] { (void)cache.acquire(Tokens{1, 2, 3, 4, 5, 6, 0}, {}, {.tag = 7}); });
        }
        lease.release();
        const std::size_t cached = cache.cached_pages();
        CHECK(cache.evict(200) == cached);
        CHECK(cache.audit().ok());
        if (!failed) return failures;
    }
}

}  // namespace

TEST_CASE("a policy whose memory runs out has changed nothing", "[R1]") {
    CHECK(fail_every_allocation<kvstem::Hazard>() > 5);
    CHECK(fail_every_allocation<kvstem::PriorityThenRecency<>>() > 3);
    CHECK(fail_every_allocation<kvstem::S3Fifo>() > 2);
    CHECK(fail_every_allocation<kvstem::SegmentedLru>() > 2);
    CHECK(fail_every_allocation<kvstem::LengthAware>() > 2);
}

TEST_CASE("a policy that refuses a request leaves no trace of its match or its namespace", "[R1]") {
    bool refuse = false;
    RadixCache<PagePool, Switched> cache({.page_tokens = 1}, PagePool(16), Switched(refuse));
    publish_prompt(cache, counted(8));
    const auto before = cache.stats();
    refuse = true;
    // The match ends inside a node, which has been cut by then.
    CHECK_THROWS_AS((void)cache.acquire(Tokens{0, 1, 2, 9}), std::bad_alloc);
    CHECK_THROWS_AS((void)cache.acquire(counted(3), {.salt = "new"}), std::bad_alloc);
    const auto after = cache.stats();
    CHECK(after.nodes == before.nodes);
    CHECK(after.namespaces == 0);
    CHECK(after.leases == 0);
    CHECK(after.free_pages == before.free_pages);
    CHECK(after.queried_tokens == before.queried_tokens);
    CHECK(cache.audit().ok());
    refuse = false;
    CHECK(cache.acquire(Tokens{0, 1, 2, 9}).lease.adopted() == 3);
}

TEST_CASE("a path pinned in one piece leaves the order that it leaves node by node", "[E2]") {
    for (unsigned seed = 0; seed < 20; ++seed) {
        kvstem::reference::SplitMix64 random(seed);
        RadixCache<PagePool> together({.page_tokens = 1}, PagePool(60));
        RadixCache<PagePool, OneByOne> one_by_one({.page_tokens = 1}, PagePool(60));
        std::vector<decltype(together.acquire({}).lease)> leases;
        std::vector<decltype(one_by_one.acquire({}).lease)> other_leases;
        for (int step = 0; step < 300; ++step) {
            INFO("seed " << seed << ", step " << step);
            Tokens prompt(1 + random.next() % 12);
            for (auto& token : prompt) token = static_cast<kvstem::Token>(random.next() % 2);
            auto a = together.acquire(prompt);
            auto b = one_by_one.acquire(prompt);
            REQUIRE(a.admission == b.admission);
            if (a.admission == kvstem::Admission::granted) {
                REQUIRE(a.lease.adopted() == b.lease.adopted());
                const auto own = std::span(prompt).subspan(a.lease.adopted());
                a.lease.publish(own);
                b.lease.publish(own);
                leases.push_back(std::move(a.lease));
                other_leases.push_back(std::move(b.lease));
            }
            while (leases.size() > random.next() % 4) {
                const auto one = static_cast<std::ptrdiff_t>(random.next() % leases.size());
                leases.erase(leases.begin() + one);
                other_leases.erase(other_leases.begin() + one);
            }
            const std::size_t pages = random.next() % 3;
            REQUIRE(together.evict(pages) == one_by_one.evict(pages));
            REQUIRE(together.audit().ok());
        }
        CHECK(one_by_one.policy().pins > 300);
        CHECK(together.stats().evicted_pages == one_by_one.stats().evicted_pages);
    }
}

TEST_CASE("SLRU knows both halves of a protected node that was split", "[E6]") {
    RadixCache<PagePool, kvstem::SegmentedLru> cache({.page_tokens = 1}, PagePool(24));
    constexpr std::size_t most_protected = 16;
    const auto adopt = [&](const Tokens& prompt) {
        return cache.acquire(joined(prompt, {-1})).lease.adopted();
    };
    publish_prompt(cache, counted(8));
    publish_prompt(cache, counted(8, 100));
    publish_prompt(cache, counted(4, 200));
    REQUIRE(adopt(counted(8)) == 8);
    // Its first half is used again; the other one is now the protected node used the longest ago.
    REQUIRE(adopt(counted(4)) == 4);
    REQUIRE(adopt(counted(8, 100)) == 8);
    REQUIRE(cache.policy().protected_pages() == most_protected);
    // Four pages more are protected, and so that half no longer is.
    REQUIRE(adopt(counted(4, 200)) == 4);
    CHECK(cache.policy().protected_pages() == most_protected);
    CHECK(cache.evict(4) == 4);
    CHECK(cache.peek(counted(9)).cached_tokens == 4);
    CHECK(cache.policy().protected_pages() == most_protected);
    CHECK(cache.audit().ok());
}

TEST_CASE("hazard allocates nothing once its history is full") {
    // 65,536 entries are the least a history has room for; then old ones make room for new ones.
    RadixCache<PagePool, kvstem::Hazard> cache({.page_tokens = 1}, PagePool(600));
    kvstem::Token token = 0;
    const auto request = [&] {
        Tokens prompt(512);
        for (auto& t : prompt) t = token++;
        publish_prompt(cache, prompt);
    };
    for (int i = 0; i < 140; ++i) request();
    const std::size_t before = cache.policy().bytes();
    for (int i = 0; i < 140; ++i) request();
    CHECK(cache.policy().bytes() == before);
    CHECK(before < 6'000'000);
}
