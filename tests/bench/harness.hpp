// SPDX-License-Identifier: MIT
// Measuring: medians of alternating repetitions, the latency of a load, resident memory.
#pragma once

#include <malloc.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

namespace bench {

using Seconds = double;

/// The time of day, for steps that are too short for the other clock, and for several threads.
inline Seconds now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

/// Processor time of this thread, in and outside the kernel: what other programs take of the
/// processor meanwhile is not counted. Reading it costs a system call.
inline Seconds processor_now() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// Keeps a value from being optimised away.
template <class T>
void keep(const T& value) {
    asm volatile("" : : "g"(&value) : "memory");
}

/// Processor time of an action that takes many microseconds.
template <class Action>
Seconds time(Action&& action) {
    const Seconds start = processor_now();
    action();
    return processor_now() - start;
}

/// Time of an action by the clock on the wall.
template <class Action>
Seconds wall_time(Action&& action) {
    const Seconds start = now();
    action();
    return now() - start;
}

inline Seconds median(std::vector<Seconds> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

/// Times several actions in turn, A B C A B C …, after one round that does not count, and returns
/// the median of each: what drifts on the machine meanwhile meets all of them alike. Each action
/// returns its own time, so that it can leave out what only prepares it.
inline std::vector<Seconds> alternate(int rounds,
                                      const std::vector<std::function<Seconds()>>& actions) {
    std::vector<std::vector<Seconds>> times(actions.size());
    for (int round = -1; round < rounds; ++round) {
        for (std::size_t i = 0; i < actions.size(); ++i) {
            const Seconds seconds = actions[i]();
            if (round >= 0) times[i].push_back(seconds);
        }
    }
    std::vector<Seconds> medians;
    for (const auto& list : times) medians.push_back(median(list));
    return medians;
}

/// What `wall_time` says of nothing: to be taken off where single steps are timed, because a step
/// of some hundred nanoseconds is not much longer.
inline Seconds clock_cost() {
    std::vector<Seconds> costs(1001);
    for (Seconds& cost : costs) {
        cost = 0;
        for (int i = 0; i < 16; ++i) cost += wall_time([] {}) / 16;
    }
    return median(costs);
}

/// L: one dependent load. A pointer chase in random order through 64 MB in lines of 64 bytes, which
/// is more than the caches hold and costs a TLB miss as often as a tree of that size does.
class Latency {
  public:
    Latency() : lines_(lines) {
        std::vector<std::uint32_t> order(lines);
        std::iota(order.begin(), order.end(), 0u);
        std::shuffle(order.begin(), order.end(), std::mt19937_64(1));
        for (std::size_t i = 0; i < lines; ++i) lines_[order[i]].next = order[(i + 1) % lines];
    }
    Seconds measure() {
        constexpr int steps = 200'000;
        return time([&] {
                   for (int i = 0; i < steps; ++i) at_ = lines_[at_].next;
                   keep(at_);
               }) /
               steps;
    }

  private:
    static constexpr std::size_t lines = 64 * 1024 * 1024 / 64;
    struct alignas(64) Line {
        std::uint32_t next;
    };
    std::vector<Line> lines_;
    std::uint32_t at_ = 0;
};

/// Resident memory of the process.
inline std::size_t resident_bytes() {
    std::FILE* file = std::fopen("/proc/self/statm", "r");
    if (file == nullptr) return 0;
    unsigned long total = 0;
    unsigned long resident = 0;
    if (std::fscanf(file, "%lu %lu", &total, &resident) != 2) resident = 0;
    std::fclose(file);
    return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

/// The same after the allocator has given back what it can: without what earlier rows left behind.
inline std::size_t trimmed_resident_bytes() {
    malloc_trim(0);
    return resident_bytes();
}

}  // namespace bench
