// SPDX-License-Identifier: MIT
// Ends the test program when a test hangs, instead of hanging with it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

namespace kvstem_test {

/// While it lives, the program has to get on: after ten minutes it is aborted. A net for what waits
/// for ever; no test passes or fails by how long it takes.
class Watchdog {
  public:
    explicit Watchdog(const char* what) : what_(what), thread_([this] { watch(); }) {}
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;
    ~Watchdog() {
        {
            const std::lock_guard lock(mutex_);
            done_ = true;
        }
        ended_.notify_one();
        thread_.join();
    }

  private:
    void watch() {
        std::unique_lock lock(mutex_);
        if (ended_.wait_for(lock, std::chrono::minutes(10), [this] { return done_; })) return;
        std::fprintf(stderr, "hangs: %s\n", what_);
        std::abort();
    }

    const char* what_;
    bool done_ = false;
    std::mutex mutex_;
    std::condition_variable ended_;
    std::thread thread_;  // last: it uses all the others
};

}  // namespace kvstem_test
