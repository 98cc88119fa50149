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

/// Tells the processor that this thread waits in a loop.
inline void pause_briefly() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

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
    /// Who finds it taken tries again, up to 64 times and 200 µs, before it sleeps: sleeping and
    /// waking cost both threads some ten microseconds.
    ///
    /// How soon is a matter of how far apart the processors are. A try takes the mutex's cache line
    /// from its holder, and each change of holder brings some ten lines of the tree along. Where a
    /// line takes 50 to 90 ns, that is less than what the threads gain by working at the same time
    /// (one reads its prompt while the other holds the lock), and the next try follows soon. Where
    /// it takes 250 ns, it is more than all that a call does. There the next try is 64 times as far
    /// away as the last one took (at most 50 µs), and the processor is free meanwhile for whoever
    /// can use it: two threads on chat traffic pass the lock on every 57 calls in place of 4.
    [[nodiscard]] std::unique_lock<std::mutex> lock() {
        using Clock = std::chrono::steady_clock;
        constexpr int most_tries = 64;
        constexpr Clock::duration longest = std::chrono::microseconds(200);
        constexpr Clock::duration far_apart =
            std::chrono::nanoseconds(150);  // a try and its timing
        if (mutex_.try_lock()) return {mutex_, std::adopt_lock};
        Clock::time_point next = Clock::now();
        const Clock::time_point last = next + longest;
        for (int i = 0; i < most_tries && next < last; ++i) {
            for (int k = 0; k < 24; ++k) pause_briefly();
            while (Clock::now() < next) std::this_thread::yield();
            const Clock::time_point start = Clock::now();
            if (mutex_.try_lock()) return {mutex_, std::adopt_lock};
            next = Clock::now();
            const Clock::duration took = next - start;
            if (took > far_apart) next += std::min(64 * took, longest / 4);
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
