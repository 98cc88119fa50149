// SPDX-License-Identifier: MIT
// What keeps a lock that is held for a microsecond from costing more than that.
#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>
#include <span>

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
    /// Before it sleeps it tries for some ten microseconds (more where a pause is long), which is
    /// about what sleeping and waking would cost both threads.
    [[nodiscard]] std::unique_lock<std::mutex> lock() {
        constexpr int tries = 64;
        constexpr int pauses_between = 24;  // each try takes the mutex's cache line from its holder
        for (int i = 0; i < tries; ++i) {
            if (mutex_.try_lock()) return {mutex_, std::adopt_lock};
            for (int k = 0; k < pauses_between; ++k) pause_briefly();
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
