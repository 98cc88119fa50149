// SPDX-License-Identifier: MIT
// The shared form's mutex: one at a time, whichever way it is come by.
//
// Nothing here depends on how fast a thread is: on a machine where nobody ever has to wait, less is
// tried, and no check fails for that.

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "catch.hpp"
#include "kvstem/detail/short_lock.hpp"
#include "support/watchdog.hpp"

using kvstem::detail::ShortMutex;
using kvstem_test::Watchdog;

TEST_CASE("a short mutex lets in one thread at a time", "[threads][R4]") {
    const Watchdog watchdog("threads that want a short mutex");
    constexpr std::size_t n_threads = 4;
    constexpr std::size_t calls = 20'000;
    const std::array<int, 64> prompt{};
    ShortMutex mutex;
    std::size_t inside = 0;  // written under the mutex only
    std::size_t served = 0;
    std::atomic<std::size_t> faults = 0;
    const auto call = [&](const std::unique_lock<std::mutex>& lock) {
        if (!lock.owns_lock() || inside != 0) ++faults;
        ++inside;
        ++served;
        --inside;
    };
    std::vector<std::thread> threads;
    threads.reserve(n_threads);
    for (std::size_t i = 0; i < n_threads; ++i) {
        threads.emplace_back([&] {
            for (std::size_t k = 0; k < calls; ++k) {
                call(mutex.lock());
                call(mutex.lock_to_read(std::span<const int>(prompt)));
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(faults == 0);
    CHECK(served == n_threads * calls * 2);
}

TEST_CASE("who has tried in vain for long gets a short mutex when it comes free", "[threads][R4]") {
    const Watchdog watchdog("a thread that sleeps for a short mutex");
    ShortMutex mutex;
    auto held = mutex.lock();
    bool given_back = false;
    bool too_early = true;
    bool owned = false;
    std::atomic<bool> waits = false;
    std::thread other([&] {
        waits = true;
        const auto lock = mutex.lock();
        owned = lock.owns_lock();
        too_early = !given_back;
    });
    while (!waits) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // it has given up trying by now
    given_back = true;
    held.unlock();
    other.join();
    CHECK(owned);
    CHECK(!too_early);
}
