// SPDX-License-Identifier: MIT
// What keeps a lock that is held for a microsecond from costing more than that.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <span>
#include <thread>

#include "../config.hpp"

namespace kvstem::inline KVSTEM_ABI::detail {

/// Reads an array once, so that it lies in this processor's cache.
template <class T>
void read_ahead(std::span<const T> array) noexcept {
    constexpr std::size_t line_bytes = 64;
    constexpr std::size_t step = sizeof(T) < line_bytes ? line_bytes / sizeof(T) : 1;
    for (std::size_t i = 0; i < array.size(); i += step) {
        static_cast<void>(*reinterpret_cast<const volatile unsigned char*>(&array[i]));
    }
}

/// A mutex that is never held for long.
class ShortMutex {
  public:
    /// Who finds it taken tries again before sleeping, which would cost both threads more.
    ///
    /// How soon is a matter of how far apart the processors are. A try takes the mutex's cache line
    /// from its holder, and each change of holder brings some ten lines of the tree along. So the
    /// next try is 64 times as long away as the last one took: near each other (50 ns for a line)
    /// the lock changes hands every few calls, far apart (250 ns and more) every few dozen, and
    /// what the lines cost stays a small part. Meanwhile the processor is free for whoever can use
    /// it, the holder among others.
    [[nodiscard]] std::unique_lock<std::mutex> lock() {
        using Clock = std::chrono::steady_clock;
        constexpr int tries = 16;
        constexpr Clock::duration longest_wait = std::chrono::microseconds(50);
        if (mutex_.try_lock()) return {mutex_, std::adopt_lock};
        Clock::time_point next = Clock::now();
        for (int i = 0; i < tries; ++i) {
            do std::this_thread::yield();
            while (Clock::now() < next);
            const Clock::time_point start = Clock::now();
            if (mutex_.try_lock()) return {mutex_, std::adopt_lock};
            const Clock::time_point end = Clock::now();
            next = end + std::min(64 * (end - start), longest_wait);
        }
        return std::unique_lock(mutex_);
    }
    /// The same for a call that is going to read `array`. While several threads want the lock, each
    /// fetches its array before it takes it, and so holds it for less. A thread by itself does not:
    /// it would wait for that memory now instead of later, and for one array at a time.
    template <class T>
    [[nodiscard]] std::unique_lock<std::mutex> lock_to_read(std::span<const T> array) {
        if (contended_.load(std::memory_order_relaxed) == 0) {
            if (mutex_.try_lock()) return {mutex_, std::adopt_lock};
            contended_.store(calls_contended, std::memory_order_relaxed);
        }
        read_ahead(array);
        if (!mutex_.try_lock()) {
            contended_.store(calls_contended, std::memory_order_relaxed);
            return lock();
        }
        // A lost update does no harm: this is a guess at what the next calls will meet.
        const int left = contended_.load(std::memory_order_relaxed);
        if (left != 0) contended_.store(left - 1, std::memory_order_relaxed);
        return {mutex_, std::adopt_lock};
    }

  private:
    static constexpr int calls_contended = 128;
    std::mutex mutex_;
    std::atomic<int> contended_ = 0;  // for so many calls yet, others are expected to want the lock
};

}  // namespace kvstem
