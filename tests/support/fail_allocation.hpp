// SPDX-License-Identifier: MIT
// Makes the n-th allocation fail. The test program's operator new is replaced in
// fail_allocation.cpp.
#pragma once

#include <cstddef>
#include <new>

namespace kvstem_test {

/// While it lives, counts this thread's allocations by operator new, and the n-th of them (the
/// first is 1; 0: none) throws std::bad_alloc, or returns null where nothrow was asked for. One at
/// a time.
class FailingAllocation {
  public:
    explicit FailingAllocation(std::size_t n) noexcept;
    FailingAllocation(const FailingAllocation&) = delete;
    FailingAllocation& operator=(const FailingAllocation&) = delete;
    ~FailingAllocation();

    /// Whether there was an n-th allocation, which then failed.
    [[nodiscard]] bool fired() const noexcept;
    /// Allocations asked for so far, the failed one included.
    [[nodiscard]] std::size_t count() const noexcept;
};

struct AllocationOutcome {
    bool fired;  ///< there was an n-th allocation, and it failed
    bool threw;  ///< and the operation passed that on
};

/// Runs an operation whose n-th allocation fails. Checks belong behind it, not into it: what the
/// test framework allocates would be counted, and could be what fails.
template <class Operation>
AllocationOutcome with_failing_allocation(std::size_t n, Operation&& operation) {
    const FailingAllocation failing(n);
    bool threw = false;
    try {
        operation();
    } catch (const std::bad_alloc&) {
        threw = true;
    }
    return {failing.fired(), threw};
}

}  // namespace kvstem_test
