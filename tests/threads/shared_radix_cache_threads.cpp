// SPDX-License-Identifier: MIT
// The shared form under many threads: who waits is woken, in the stated order, and nothing is lost.
//
// Nothing here depends on how fast a thread is. That a wait has begun is read from the cache, that
// it was ended by an event follows from its having no deadline, and the order of events from what
// each thread could only have got after another gave it back. A wait that nobody ends trips the
// watchdog.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "kvstem/shared_radix_cache.hpp"
#include "support/test_scale.hpp"
#include "support/watchdog.hpp"

using kvstem::Admission;
using kvstem::Deadline;
using kvstem::Namespace;
using kvstem::PageId;
using kvstem::PagePool;
using kvstem_test::Watchdog;

namespace {

using Cache = kvstem::SharedRadixCache<>;
using Lease = Cache::Lease;
using Tokens = std::vector<kvstem::Token>;

constexpr auto no_rows = [](PageId, PageId, std::size_t) {};

Tokens tokens(kvstem::Token first, std::size_t count) {
    Tokens result(count);
    for (std::size_t i = 0; i < count; ++i) {
        result[i] = first * 1000 + static_cast<kvstem::Token>(i);
    }
    return result;
}

Lease granted(kvstem::Acquired<Lease> acquired) {
    REQUIRE(acquired.admission == Admission::granted);
    return std::move(acquired.lease);
}

void compute(Lease& lease, const Tokens& prompt) {
    lease.wrote(std::span(prompt).subspan(lease.written()));
}

/// Returns when so many requests wait, and not before.
void until_waiting(const Cache& cache, std::size_t requests) {
    while (cache.waiting_requests() != requests) std::this_thread::yield();
}

void check_conserved(const Cache& cache) {
    const auto report = cache.audit();
    for (const auto& finding : report.findings) FAIL_CHECK(finding.what);
    const auto stats = cache.stats();
    CHECK(stats.hit_tokens + stats.missed_tokens == stats.queried_tokens);
    CHECK(stats.leases == 0);
    CHECK(stats.free_pages + stats.cached_pages == stats.capacity_pages);
    CHECK(cache.waiting_requests() == 0);
}

/// What threads did, in order.
class Log {
  public:
    void add(std::string what) {
        const std::lock_guard lock(mutex_);
        entries_.push_back(std::move(what));
    }
    [[nodiscard]] std::vector<std::string> entries() const {
        const std::lock_guard lock(mutex_);
        return entries_;
    }

  private:
    mutable std::mutex mutex_;
    std::vector<std::string> entries_;
};

/// A thread that ends with an admission. What it says is checked after it has ended: the assertions
/// of the test framework are for one thread at a time.
class Background {
  public:
    template <class Run>
    explicit Background(Run run) : thread_([this, run]() mutable { admission_ = run(); }) {}
    Background(const Background&) = delete;
    Background& operator=(const Background&) = delete;
    ~Background() {
        if (thread_.joinable()) thread_.join();
    }
    [[nodiscard]] Admission outcome() {
        thread_.join();
        return admission_;
    }

  private:
    Admission admission_ = Admission::exhausted;
    std::thread thread_;  // last: it uses the other
};

/// Acquires without a deadline, and releases at once.
auto acquire_and_release(Cache& cache, Tokens prompt) {
    return [&cache, prompt = std::move(prompt)] {
        return cache.acquire_until(prompt, Deadline::max()).admission;
    };
}

/// Starts a request for `prompt` that waits without a deadline, lets `event` happen once it waits,
/// and expects it to be granted, not before `event` began.
template <class Event>
void check_woken_by(Cache& cache, const Tokens& prompt, Event&& event) {
    const Watchdog watchdog("a request that an event should wake");
    std::atomic<bool> happened = false;
    bool in_order = false;
    Background waiter([&] {
        const auto acquired = cache.acquire_until(prompt, Deadline::max());
        in_order = happened;
        return acquired.admission;
    });
    until_waiting(cache, 1);
    happened = true;
    event();
    CHECK(waiter.outcome() == Admission::granted);
    CHECK(in_order);
}

}  // namespace

TEST_CASE("a waiting request is woken by everything that brings pages within its reach",
          "[threads][E4]") {
    Cache cache({.page_tokens = 2}, PagePool(4));
    const Tokens prompt = tokens(1, 8);
    Lease lease = granted(cache.acquire(prompt));
    const auto refused = cache.stats().exhausted;

    SECTION("the end of a lease") {
        check_woken_by(cache, tokens(2, 8), [&] { lease.release(); });
    }
    SECTION("the end of a lease that another replaces") {
        check_woken_by(cache, tokens(2, 8), [&] { lease = Lease(); });
    }
    SECTION("the end of a lease that leaves its pages in the tree") {
        compute(lease, prompt);
        lease.publish();
        check_woken_by(cache, tokens(2, 8), [&] { lease.release(); });
        CHECK(cache.stats().evicted_pages == 4);
    }
    SECTION("a cut-back") {
        compute(lease, prompt);
        check_woken_by(cache, tokens(2, 4),
                       [&] { CHECK(lease.cut_back(4, no_rows) == Admission::granted); });
    }
    SECTION("a publish of what the request begins with") {
        // It needs three pages, of which two are in the tree by then and the third is free.
        compute(lease, prompt);
        CHECK(lease.cut_back(5, no_rows) == Admission::granted);
        Tokens longer = prompt;
        longer.resize(6);
        check_woken_by(cache, longer, [&] { CHECK(lease.publish() == 2); });
    }
    SECTION("a switch to the tree's pages") {
        lease.release();
        Lease first = granted(cache.acquire(tokens(1, 4)));
        Lease second = granted(cache.acquire(tokens(1, 4)));
        compute(first, tokens(1, 4));
        compute(second, tokens(1, 4));
        first.publish();
        second.publish();
        check_woken_by(cache, tokens(2, 4), [&] { CHECK(second.switch_to_tree() == 2); });
    }
    lease.release();
    check_conserved(cache);
    CHECK(cache.stats().exhausted == refused);  // C1: a wait that was granted is no refusal
}

TEST_CASE("the largest duration waits for ever and does not overflow", "[threads][E4]") {
    const Watchdog watchdog("a request that waits for ever");
    Cache cache({.page_tokens = 2}, PagePool(4));
    Lease lease = granted(cache.acquire(tokens(1, 8)));
    std::atomic<bool> ended = false;
    Background waiter([&] {
        const auto acquired = cache.acquire_for(tokens(2, 8), Deadline::duration::max());
        ended = true;
        return acquired.admission;
    });
    while (cache.waiting_requests() != 1 && !ended) std::this_thread::yield();
    CHECK_FALSE(ended);
    lease.release();
    CHECK(waiter.outcome() == Admission::granted);
    check_conserved(cache);
}

TEST_CASE("clear and drop wake those who wait, to no avail while leases hold the pages",
          "[threads][L5]") {
    const Watchdog watchdog("a request behind a cleared cache");
    Cache cache({.page_tokens = 2}, PagePool(4));
    Lease lease = granted(cache.acquire(tokens(1, 8), {.salt = "s"}));
    compute(lease, tokens(1, 8));
    lease.publish();
    Background waiter(acquire_and_release(cache, tokens(2, 8)));
    until_waiting(cache, 1);
    CHECK(cache.drop({.salt = "s"}) == 4);
    cache.clear();
    CHECK(cache.evict(4) == 0);
    CHECK(cache.waiting_requests() == 1);
    lease.release();
    CHECK(waiter.outcome() == Admission::granted);
    check_conserved(cache);
}

TEST_CASE("a large request is not starved by small ones that come after it", "[threads][E4]") {
    const Watchdog watchdog("requests of different size");
    Cache cache({.page_tokens = 1}, PagePool(4));
    std::vector<Lease> held;
    for (kvstem::Token i = 0; i < 4; ++i) held.push_back(granted(cache.acquire(tokens(i, 1))));
    Log log;
    const auto request = [&](const char* name, kvstem::Token first, std::size_t count) {
        return [&, name, prompt = tokens(first, count)] {
            const auto acquired = cache.acquire_until(prompt, Deadline::max());
            log.add(name);  // before it gives back what the next one needs
            return acquired.admission;
        };
    };
    Background large(request("large", 11, 4));
    until_waiting(cache, 1);
    // Each of the four pages would be enough for one of the small, this one as they arrive.
    held.pop_back();
    Background small_1(request("small", 12, 1));
    Background small_2(request("small", 13, 1));
    until_waiting(cache, 3);
    for (Lease& lease : held) {
        lease.release();
        std::this_thread::yield();
    }
    for (Background* each : {&large, &small_1, &small_2}) {
        CHECK(each->outcome() == Admission::granted);
    }
    CHECK(log.entries() == std::vector<std::string>{"large", "small", "small"});
    CHECK(cache.stats().exhausted == 0);
    check_conserved(cache);
}

TEST_CASE("a lease that grows goes before requests that hold nothing", "[threads][L4]") {
    const Watchdog watchdog("a lease that grows while requests wait");
    Cache cache({.page_tokens = 1}, PagePool(4));
    Lease three = granted(cache.acquire(tokens(1, 3)));
    compute(three, tokens(1, 3));
    Lease one = granted(cache.acquire(tokens(2, 1)));
    // The page that will come free is enough for the request that comes first, or is not.
    const std::size_t first_needs = GENERATE(std::size_t{1}, std::size_t{4});
    Background first(acquire_and_release(cache, tokens(3, first_needs)));
    until_waiting(cache, 1);
    Background growing([&] { return one.grow_until(2, Deadline::max()); });
    until_waiting(cache, 2);
    CHECK(three.cut_back(2, no_rows) == Admission::granted);
    CHECK(growing.outcome() == Admission::granted);
    CHECK(cache.waiting_requests() == 1);
    three.release();
    one.release();
    CHECK(first.outcome() == Admission::granted);
    check_conserved(cache);
}

TEST_CASE("a lease that grows is not held up by an earlier one that needs more", "[threads][L4]") {
    const Watchdog watchdog("two leases that grow");
    Cache cache({.page_tokens = 1}, PagePool(6));
    Lease first = granted(cache.acquire(tokens(1, 1)));
    Lease second = granted(cache.acquire(tokens(2, 1)));
    Lease rest = granted(cache.acquire(tokens(3, 4)));
    compute(rest, tokens(3, 4));
    Background much([&] { return first.grow_until(5, Deadline::max()); });
    until_waiting(cache, 1);
    Background little([&] { return second.grow_until(2, Deadline::max()); });
    until_waiting(cache, 2);
    CHECK(rest.cut_back(3, no_rows) == Admission::granted);
    CHECK(little.outcome() == Admission::granted);
    CHECK(cache.waiting_requests() == 1);
    second.release();
    rest.release();
    CHECK(much.outcome() == Admission::granted);
    first.release();
    check_conserved(cache);
}

TEST_CASE("what can never fit does not stand in line to be told", "[threads][E4]") {
    const Watchdog watchdog("a request that can never fit");
    Cache cache({.page_tokens = 1}, PagePool(2));
    Lease all = granted(cache.acquire(tokens(1, 2)));
    Background waiter(acquire_and_release(cache, tokens(2, 1)));
    until_waiting(cache, 1);
    CHECK(cache.acquire_until(tokens(3, 3), Deadline::max()).admission == Admission::never_fits);
    CHECK(all.grow_until(3, Deadline::max()) == Admission::never_fits);
    CHECK(cache.waiting_requests() == 1);
    all.release();
    CHECK(waiter.outcome() == Admission::granted);
    check_conserved(cache);
}

TEST_CASE("a request that gives up lets those behind it go on", "[threads][E4]") {
    const Watchdog watchdog("a request behind one that gives up");
    Cache cache({.page_tokens = 1}, PagePool(3));
    Lease held = granted(cache.acquire(tokens(1, 1)));
    // If the second one comes while the first waits, the end of that wait is what wakes it.
    Background gives_up(
        [&] { return cache.acquire_for(tokens(2, 3), std::chrono::milliseconds(50)).admission; });
    Background fits(acquire_and_release(cache, tokens(3, 2)));
    CHECK(gives_up.outcome() == Admission::exhausted);
    CHECK(fits.outcome() == Admission::granted);
    CHECK(cache.stats().exhausted == 1);
    held.release();
    check_conserved(cache);
}

TEST_CASE("two leases that wait for each other's pages both end within the wait",
          "[threads][C24]") {
    const Watchdog watchdog("two leases that wait for each other");
    Cache cache({.page_tokens = 1}, PagePool(2));
    std::array<Lease, 2> leases{granted(cache.acquire(tokens(1, 1))),
                                granted(cache.acquire(tokens(2, 1)))};
    std::array<Admission, 2> outcomes{};
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < 2; ++i) {
        threads.emplace_back([&, i] {
            const auto wait = std::chrono::milliseconds(20 + 60 * static_cast<int>(i));
            outcomes[i] = leases[i].grow_until(2, std::chrono::steady_clock::now() + wait);
            leases[i].release();
        });
    }
    for (std::thread& thread : threads) thread.join();
    // Whoever gives up first sets the other one free, if that one still waits by then.
    const auto refused = std::count(outcomes.begin(), outcomes.end(), Admission::exhausted);
    CHECK(refused >= 1);
    CHECK(std::count(outcomes.begin(), outcomes.end(), Admission::never_fits) == 0);
    CHECK(cache.stats().exhausted == static_cast<std::uint64_t>(refused));
    check_conserved(cache);
}

TEST_CASE("an exception in the thread that has the turn passes the turn on", "[threads][R1]") {
    const Watchdog watchdog("a request behind one that fails");
    Cache cache({.page_tokens = 2}, PagePool(4));
    Lease lease = granted(cache.acquire(tokens(1, 8)));
    compute(lease, tokens(1, 8));
    lease.publish();
    struct CopyRefused {};
    bool failed = false;
    Background fails([&] {
        const Tokens branch{1000, -1, -1};  // begins like a cached page
        const auto refuse = [](PageId, PageId, std::size_t) { throw CopyRefused(); };
        try {
            return cache.acquire_until(branch, Deadline::max(), {}, refuse).admission;
        } catch (const CopyRefused&) {
            failed = true;
        }
        return Admission::exhausted;
    });
    until_waiting(cache, 1);
    Background behind(acquire_and_release(cache, tokens(3, 2)));
    until_waiting(cache, 2);
    lease.release();
    CHECK(fails.outcome() == Admission::exhausted);
    CHECK(behind.outcome() == Admission::granted);
    CHECK(failed);
    check_conserved(cache);
}

namespace {

/// One thread's random requests. What it finds wrong is counted.
class Worker {
  public:
    Worker(Cache& cache, std::uint32_t seed) : cache_(cache), random_(seed) {}

    void run(std::size_t steps) {
        for (std::size_t i = 0; i < steps; ++i) step();
        leases_.clear();
    }
    [[nodiscard]] std::size_t faults() const { return faults_; }
    [[nodiscard]] std::uint64_t granted() const { return granted_; }
    [[nodiscard]] std::uint64_t granted_tokens() const { return granted_tokens_; }
    [[nodiscard]] std::uint64_t refusals() const { return refusals_; }

  private:
    struct Request {
        Lease lease;
        Tokens tokens;
    };

    std::size_t below(std::size_t n) { return random_() % n; }
    void require(bool holds) { faults_ += holds ? 0 : 1; }
    Namespace some_name() {
        return below(4) != 0 ? Namespace{} : Namespace{.salt = below(2) != 0 ? "a" : "b"};
    }
    Tokens some_prompt() {
        // Few different tokens at the places where prompts part, so that they share and split.
        Tokens prompt(below(24));
        for (std::size_t i = 0; i < prompt.size(); ++i) {
            prompt[i] = i % 4 == 3 ? static_cast<kvstem::Token>(below(2)) : 7;
        }
        return prompt;
    }
    Deadline soon() {
        return std::chrono::steady_clock::now() + std::chrono::microseconds(below(2000));
    }

    void step() {
        const std::size_t what = below(16);
        if (what < 5 || leases_.empty()) return acquire();
        const std::size_t i = below(leases_.size());
        if (what < 8) return compute(leases_[i]);
        if (what < 9) return grow(leases_[i]);
        if (what < 10) return fork(i);
        if (what < 11) return cut_back(leases_[i]);
        if (what < 15) return release(i);
        disturb();
    }
    void acquire() {
        if (leases_.size() == 3) return release(below(3));
        Tokens prompt = some_prompt();
        const Namespace name = some_name();
        const std::size_t how = below(3);
        auto acquired = how == 0   ? cache_.acquire(prompt, name)
                        : how == 1 ? cache_.acquire_until(prompt, soon(), name, no_rows)
                                   : cache_.acquire_until(prompt, soon(), name);
        note(acquired.admission);
        if (!acquired) return;
        const Lease& lease = acquired.lease;
        require(lease.adopted() == lease.written() && lease.capacity() >= prompt.size());
        require(prompt.empty() ? lease.adopted() == 0 : lease.adopted() < prompt.size());
        ++granted_;
        granted_tokens_ += prompt.size();
        leases_.push_back({std::move(acquired.lease), std::move(prompt)});
    }
    void compute(Request& request) {
        Lease& lease = request.lease;
        request.tokens.resize(std::max(request.tokens.size(), lease.written()), 7);
        const std::size_t room = request.tokens.size() - lease.written();
        const std::size_t rows = std::min(room, 1 + below(8));
        lease.wrote(std::span(request.tokens).subspan(lease.written(), rows));
        if (below(2) != 0) lease.publish();
        if (below(4) == 0) lease.switch_to_tree();
        require(lease.published() <= lease.written());
    }
    void grow(Request& request) {
        const std::size_t positions = request.tokens.size() + below(6);
        const bool waits = below(2) != 0;
        const Admission admission =
            waits ? request.lease.grow_until(positions, soon()) : request.lease.grow_to(positions);
        note(admission);
        if (admission != Admission::granted) return;
        require(request.lease.capacity() >= positions);
        request.tokens.resize(positions, 7);
    }
    void fork(std::size_t i) {
        if (leases_.size() == 3) return;
        auto acquired = leases_[i].lease.fork(no_rows);
        note(acquired.admission);
        if (!acquired) return;
        Tokens written = leases_[i].tokens;
        written.resize(acquired.lease.written());
        leases_.push_back({std::move(acquired.lease), std::move(written)});
    }
    void cut_back(Request& request) {
        const std::size_t position = below(request.lease.written() + 1);
        const Admission admission = request.lease.cut_back(position, no_rows);
        note(admission);
        if (admission != Admission::granted) return;
        require(request.lease.written() == position);
        request.tokens.resize(position);
    }
    void release(std::size_t i) {
        std::swap(leases_[i], leases_.back());
        leases_.pop_back();
    }
    /// What concerns everybody.
    void disturb() {
        switch (below(8)) {
            case 0:
                cache_.clear();
                break;
            case 1:
                cache_.drop(some_name());
                break;
            case 2:
            case 3:
                cache_.evict(below(6));
                break;
            case 4:
                require(cache_.audit().ok());
                break;
            case 5: {
                const auto match = cache_.peek(some_prompt(), some_name());
                require(match.adoptable_tokens <= match.cached_tokens);
            } break;
            default: {
                const auto stats = cache_.stats();
                require(stats.hit_tokens + stats.missed_tokens == stats.queried_tokens);
                require(stats.cached_pages == stats.pinned_pages + stats.evictable_pages);
            }
        }
    }
    void note(Admission admission) {
        require(admission != Admission::never_fits);
        refusals_ += admission == Admission::exhausted ? 1 : 0;
    }

    Cache& cache_;
    std::mt19937 random_;
    std::vector<Request> leases_;
    std::size_t faults_ = 0;
    std::uint64_t granted_ = 0;
    std::uint64_t granted_tokens_ = 0;
    std::uint64_t refusals_ = 0;
};

/// Eight threads in a pool that is too small for all of them.
void run_workers(std::size_t page_tokens, std::size_t pages, std::size_t steps) {
    const Watchdog watchdog("eight threads with random requests");
    Cache cache({.page_tokens = page_tokens}, PagePool(pages));
    std::vector<Worker> workers;
    for (std::uint32_t i = 0; i < 8; ++i) {
        workers.emplace_back(cache, static_cast<std::uint32_t>(page_tokens) * 100 + i);
    }
    std::vector<std::thread> threads;
    for (Worker& worker : workers) threads.emplace_back([&worker, steps] { worker.run(steps); });
    for (std::thread& thread : threads) thread.join();

    std::uint64_t granted = 0;
    std::uint64_t granted_tokens = 0;
    std::uint64_t refusals = 0;
    for (const Worker& worker : workers) {
        CHECK(worker.faults() == 0);
        granted += worker.granted();
        granted_tokens += worker.granted_tokens();
        refusals += worker.refusals();
    }
    const auto stats = cache.stats();
    CHECK(granted != 0);
    CHECK(refusals != 0);  // or the pool was not small
    CHECK(stats.hits + stats.misses == granted);
    CHECK(stats.queried_tokens == granted_tokens);
    CHECK(stats.exhausted == refusals);
    check_conserved(cache);
    cache.clear();
    CHECK(cache.free_pages() == pages);
}

}  // namespace

TEST_CASE("eight threads with waits and time-outs neither hang nor leak",
          "[threads][R4][C1][C05]") {
    const std::size_t steps = 10'000 * kvstem_test::test_scale();
    SECTION("P = 1") {
        run_workers(1, 64, steps);
    }
    SECTION("P = 2") {
        run_workers(2, 34, steps);
    }
    SECTION("P = 4") {
        run_workers(4, 18, steps);
    }
}
