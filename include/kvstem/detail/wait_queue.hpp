// SPDX-License-Identifier: MIT
// Who waits for pages, and whose turn it is to try.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <utility>

#include "../config.hpp"

namespace kvstem::inline KVSTEM_ABI {

/// Until when a request waits. `Deadline::max()` waits for ever, a time that has passed not at all.
using Deadline = std::chrono::steady_clock::time_point;

namespace detail {

/// The requests that wait for pages, in the order in which they may try. They stand on their
/// threads' stacks, so that queueing cannot fail. Every call needs the cache's mutex.
///
///     growing leases, by arrival ── new requests, by arrival
///
/// Whoever has the turn tries once. The turn starts at the front whenever pages may have come free
/// and then moves on: past a lease that cannot grow yet to the next lease that waits, and past
/// anyone who leaves the queue. It stops at the first new request that does not fit, and no new
/// request tries while a lease waits.
class WaitQueue {
  public:
    enum class Kind { growing_lease, new_request };

    /// A place in the queue, from construction to destruction.
    class Place {
      public:
        Place(WaitQueue& queue, Kind kind) noexcept : queue_(queue), kind_(kind) {
            Place* before = queue.last_;
            if (kind == Kind::growing_lease) {
                while (before != nullptr && before->kind_ == Kind::new_request) {
                    before = before->previous_;
                }
            }
            previous_ = before;
            next_ = before != nullptr ? before->next_ : queue.first_;
            (previous_ != nullptr ? previous_->next_ : queue.first_) = this;
            (next_ != nullptr ? next_->previous_ : queue.last_) = this;
            ++queue.size_;
            has_turn_ = may_try();
        }
        Place(const Place&) = delete;
        Place& operator=(const Place&) = delete;
        /// Leaves. Those behind may have waited for this one only, or may now use what it left.
        ~Place() {
            (previous_ != nullptr ? previous_->next_ : queue_.first_) = next_;
            (next_ != nullptr ? next_->previous_ : queue_.last_) = previous_;
            --queue_.size_;
            if (next_ != nullptr) next_->give_turn();
        }

        /// Takes the turn, if it is this place's, and if no lease has come before it since.
        [[nodiscard]] bool take_turn() noexcept {
            return std::exchange(has_turn_, false) && may_try();
        }
        /// After a try that failed.
        void pass_on() noexcept {
            if (next_ != nullptr && next_->kind_ == Kind::growing_lease) next_->give_turn();
        }
        /// Sleeps until this place has the turn; false if the deadline came first.
        [[nodiscard]] bool wait(std::unique_lock<std::mutex>& lock, Deadline deadline) {
            const auto has_turn = [this]() noexcept { return has_turn_; };
            // Some libraries turn the deadline into another clock's time, where the largest
            // overflows.
            if (deadline != Deadline::max())
                return turn_given_.wait_until(lock, deadline, has_turn);
            turn_given_.wait(lock, has_turn);
            return true;
        }

      private:
        friend WaitQueue;
        /// A new request may try only at the front of the queue.
        [[nodiscard]] bool may_try() const noexcept {
            return kind_ == Kind::growing_lease || previous_ == nullptr;
        }
        void give_turn() noexcept {
            if (!may_try()) return;
            has_turn_ = true;
            turn_given_.notify_one();  // under the mutex, or the place could be gone by now
        }

        WaitQueue& queue_;
        const Kind kind_;
        Place* previous_ = nullptr;
        Place* next_ = nullptr;
        bool has_turn_ = false;
        std::condition_variable turn_given_;
    };

    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    /// Pages may have come free, or have come within a request's reach.
    void wake() noexcept {
        if (first_ != nullptr) first_->give_turn();
    }

  private:
    Place* first_ = nullptr;
    Place* last_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace detail

}  // namespace kvstem
