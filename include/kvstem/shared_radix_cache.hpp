// SPDX-License-Identifier: MIT
// SharedRadixCache: a RadixCache that any number of threads may use, and whose requests can wait.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <utility>

#include "audit.hpp"
#include "config.hpp"
#include "detail/short_lock.hpp"
#include "detail/wait_queue.hpp"
#include "errors.hpp"
#include "lease.hpp"
#include "namespace.hpp"
#include "page_pool.hpp"
#include "policy/lru.hpp"
#include "policy/policy.hpp"
#include "radix_cache.hpp"
#include "sliding_window.hpp"
#include "token.hpp"

namespace kvstem::inline KVSTEM_ABI {

/// A lease of a SharedRadixCache: a Lease whose every change is made under the cache's lock, and
/// whose end wakes those who wait. Move-only; it may move from thread to thread.
///
/// What the calls mean is said at Lease; here is only what differs.
///
/// Exceptions: as Lease's. Threads: different leases may be used at the same time, also forks of
/// one another; one and the same lease may not, like any object. For that reason the getters need
/// no lock: what they read is changed by calls on this lease only, it stays at one address while
/// the lease lives, and what other threads read of it (an audit) they only read. The same goes for
/// the rows behind `block_table()`: pages that a lease names are nobody's to write to but its own,
/// from `written()` on. A copy hook runs under the lock: it must not call the cache or its leases,
/// and nobody else can meanwhile. Lifetime: leases that outlive the cache become empty.
template <class SharedCache>
class SharedLease {
  public:
    using Inner = typename SharedCache::Inner::Lease;
    using Tokens = typename SharedCache::Tokens;

    SharedLease() = default;
    SharedLease(SharedLease&& other) noexcept
        : cache_(other.cache_), lease_(std::move(other.lease_)) {}
    SharedLease& operator=(SharedLease&& other) noexcept {
        if (this != &other) {
            release();
            cache_ = other.cache_;
            lease_ = std::move(other.lease_);
        }
        return *this;
    }
    ~SharedLease() { release(); }

    [[nodiscard]] bool empty() const noexcept { return lease_.empty(); }
    [[nodiscard]] std::size_t adopted() const { return lease_.adopted(); }
    [[nodiscard]] std::size_t written() const { return lease_.written(); }
    [[nodiscard]] std::size_t published() const { return lease_.published(); }
    [[nodiscard]] std::size_t capacity() const { return lease_.capacity(); }
    [[nodiscard]] std::span<const PageId> block_table() const { return lease_.block_table(); }
    [[nodiscard]] std::size_t kept_from() const { return lease_.kept_from(); }

    void wrote(Tokens tokens) {
        const auto lock = this->lock();
        lease_.wrote(tokens);
    }
    /// Does not wait. May overtake those who do.
    [[nodiscard]] Admission grow_to(std::size_t positions) {
        const auto lock = this->lock();
        return lease_.grow_to(positions);
    }
    /// Waits for pages until the deadline, if it must. Goes before all requests that hold nothing
    /// yet: they can wait for this one to end, but not the other way round. `never_fits` is told at
    /// once.
    ///
    /// Two leases that wait for each other's pages both wait in vain; a scheduler gives one up.
    [[nodiscard]] Admission grow_until(std::size_t positions, Deadline deadline) {
        auto lock = this->lock();
        Admission admission = Admission::exhausted;
        cache_->wait_for_pages(lock, detail::WaitQueue::Kind::growing_lease, deadline, [&] {
            admission = lease_.grow_to(positions);
            return admission;
        });
        return admission;
    }
    /// What is published comes within the reach of those who wait for pages of the same prefix.
    std::size_t publish() {
        const auto lock = this->lock();
        const std::size_t published = lease_.publish();
        cache_->waiting_.wake();
        return published;
    }
    std::size_t publish(Tokens tokens) {
        const auto lock = this->lock();
        const std::size_t published = lease_.publish(tokens);
        cache_->waiting_.wake();
        return published;
    }
    std::size_t switch_to_tree() {
        const auto lock = this->lock();
        const std::size_t switched = lease_.switch_to_tree();
        cache_->waiting_.wake();
        return switched;
    }
    /// Does not wait.
    template <class Copy>
    [[nodiscard]] Acquired<SharedLease> fork(Copy&& copy) {
        const auto lock = this->lock();
        auto fork = lease_.fork(static_cast<Copy&&>(copy));
        return {fork.admission, SharedLease(*cache_, std::move(fork.lease))};
    }
    /// Does not wait.
    template <class Copy>
    [[nodiscard]] Admission cut_back(std::size_t position, Copy&& copy) {
        const auto lock = this->lock();
        const Admission admission = lease_.cut_back(position, static_cast<Copy&&>(copy));
        cache_->waiting_.wake();
        return admission;
    }
    /// Moves the lease's own pages only: nobody is woken.
    std::size_t slide() {
        const auto lock = this->lock();
        return lease_.slide();
    }
    /// Does not wait.
    [[nodiscard]] Admission anchor(std::size_t position) {
        const auto lock = this->lock();
        return lease_.anchor(position);
    }
    void release() noexcept {
        // An empty lease has nothing to lock: its cache may be gone.
        if (lease_.empty()) return;
        const auto lock = this->lock();
        lease_.release();
        cache_->waiting_.wake();
    }

  private:
    friend SharedCache;

    SharedLease(SharedCache& cache, Inner&& lease) noexcept
        : cache_(&cache), lease_(std::move(lease)) {}
    /// Throws StaleHandle for an empty lease, whose cache may be gone.
    [[nodiscard]] std::unique_lock<std::mutex> lock() const {
        if (lease_.empty()) {
            detail::fail<StaleHandle>(
                "the lease is empty: released, moved from, or without its cache");
        }
        return cache_->mutex_.lock();
    }

    SharedCache* cache_ = nullptr;
    Inner lease_;
};

/// A RadixCache behind one mutex: safe from any number of threads. On top of what RadixCache does,
/// a request that does not fit for now can wait until a deadline.
///
/// Choose it when several threads share a cache. An engine whose scheduler is one thread needs no
/// lock: RadixCache serves it.
///
/// Waiting (E4). Each try evicts what it needs before it gives up: only what running requests hold
/// is waited for. A request that can never fit is told so at once, whatever its deadline and
/// whoever waits. The others sleep and are woken when a lease ends, is cut back, publishes or
/// switches to the tree, and by `evict`, `clear` and `drop`; nothing polls. They are served in this
/// order:
///
///   1. leases that wait to grow, by arrival, but none is held up by an earlier one that needs
///      more;
///   2. new requests, strictly by arrival, so that a large one is not starved by small ones.
///
/// A call that does not wait takes part in no order and may overtake. At its deadline a waiting
/// request tries once more, as a call that does not wait.
/// Counting (C1): all tries of a request count as one. Only a request that was refused in the end
/// counts as refused, and only one that was granted as a query.
///
/// Complexity: RadixCache's, and one lock a call; waking O(1), and one try for each lease that
/// waits.
/// Invalidation: leases that outlive the cache become empty.
/// Exceptions: RadixCache's, with its guarantees.
/// Threads: any call at any time, but construction and destruction, which need the cache and its
/// leases alone. The page source, the policy and copy hooks are called under the lock, so they need
/// none of their own, and must not call back. Pages that come free behind the cache's back wake
/// nobody.
///
///     kvstem::SharedRadixCache<> cache({.page_tokens = 16}, kvstem::PagePool(4096));
///     auto [admission, lease] = cache.acquire_for(prompt, std::chrono::seconds(5));
///     if (admission != kvstem::Admission::granted) return refuse(admission);
template <page_source Pages = PagePool, eviction_policy Policy = LeastRecentlyUsed,
          token_type T = Token>
class SharedRadixCache {
  public:
    using Inner = RadixCache<Pages, Policy, T>;
    using Lease = SharedLease<SharedRadixCache>;
    using Tokens = std::span<const T>;
    using TokenType = T;

    /// Throws InvalidArgument for a page size of 0.
    explicit SharedRadixCache(RadixCacheOptions options, Pages pages, Policy policy = {})
        : cache_(options, std::move(pages), std::move(policy)) {}
    SharedRadixCache(const SharedRadixCache&) = delete;
    SharedRadixCache& operator=(const SharedRadixCache&) = delete;
    /// Requires: no call is under way.
    ~SharedRadixCache() { KVSTEM_ASSERT(waiting_.size() == 0); }

    [[nodiscard]] std::size_t page_tokens() const noexcept { return cache_.page_tokens(); }

    /// What is said may be out of date as soon as it is: only a lease holds on to a prefix.
    [[nodiscard]] RadixMatch peek(Tokens prompt, const Namespace& name = {}) const {
        const auto lock = mutex_.lock_to_read(prompt);
        return cache_.peek(prompt, name);
    }

    /// Does not wait. May overtake those who do.
    [[nodiscard]] Acquired<Lease> acquire(Tokens prompt, const Namespace& name = {},
                                          const RequestHints& hints = {}) {
        return acquire(prompt, name, NoCopy{}, hints);
    }
    template <copy_hook Copy>
    [[nodiscard]] Acquired<Lease> acquire(Tokens prompt, const Namespace& name, Copy&& copy,
                                          const RequestHints& hints = {}) {
        const auto lock = mutex_.lock_to_read(prompt);
        return share(cache_.acquire(prompt, name, copy, hints));
    }

    /// For a request whose window slides. Does not wait.
    [[nodiscard]] Acquired<Lease> acquire_sliding(Tokens prompt, const SlidingWindow& window,
                                                  const Namespace& name = {},
                                                  const RequestHints& hints = {}) {
        const auto lock = mutex_.lock_to_read(prompt);
        return share(cache_.acquire_sliding(prompt, window, name, hints));
    }

    /// Waits for pages until the deadline, if it must. The prompt, the namespace's strings and what
    /// the hints refer to are read until it returns. `exhausted` means that the deadline has come.
    [[nodiscard]] Acquired<Lease> acquire_until(Tokens prompt, Deadline deadline,
                                                const Namespace& name = {},
                                                const RequestHints& hints = {}) {
        return acquire_until(prompt, deadline, name, NoCopy{}, hints);
    }
    template <copy_hook Copy>
    [[nodiscard]] Acquired<Lease> acquire_until(Tokens prompt, Deadline deadline,
                                                const Namespace& name, Copy&& copy,
                                                const RequestHints& hints = {});

    /// The same for a time from now on; the largest duration waits for ever.
    [[nodiscard]] Acquired<Lease> acquire_for(Tokens prompt, Deadline::duration duration,
                                              const Namespace& name = {},
                                              const RequestHints& hints = {}) {
        return acquire_until(prompt, deadline_after(duration), name, NoCopy{}, hints);
    }
    template <copy_hook Copy>
    [[nodiscard]] Acquired<Lease> acquire_for(Tokens prompt, Deadline::duration duration,
                                              const Namespace& name, Copy&& copy,
                                              const RequestHints& hints = {}) {
        return acquire_until(prompt, deadline_after(duration), name, static_cast<Copy&&>(copy),
                             hints);
    }

    std::size_t evict(std::size_t pages) noexcept {
        const auto lock = mutex_.lock();
        const std::size_t evicted = cache_.evict(pages);
        waiting_.wake();
        return evicted;
    }
    void clear() noexcept {
        const auto lock = mutex_.lock();
        cache_.clear();
        waiting_.wake();
    }
    std::size_t drop(const Namespace& name) noexcept {
        const auto lock = mutex_.lock();
        const std::size_t dropped = cache_.drop(name);
        waiting_.wake();
        return dropped;
    }

    [[nodiscard]] std::size_t free_pages() const {
        const auto lock = mutex_.lock();
        return cache_.free_pages();
    }
    /// Requests that wait for pages now, growing leases included.
    [[nodiscard]] std::size_t waiting_requests() const {
        const auto lock = mutex_.lock();
        return waiting_.size();
    }
    [[nodiscard]] RadixCacheStats stats() const {
        const auto lock = mutex_.lock();
        RadixCacheStats stats = cache_.stats();
        stats.exhausted -= refused_tries_;
        return stats;
    }
    [[nodiscard]] AuditReport audit() const {
        const auto lock = mutex_.lock();
        return cache_.audit();
    }
    /// Calls `look` with the cache inside, locked and read-only, and returns what it returns: for
    /// pictures, exports, and several numbers of one moment. `look` must not call this cache.
    template <class Look>
    decltype(auto) inspect(Look&& look) const {
        const auto lock = mutex_.lock();
        return look(cache_);
    }

  private:
    friend Lease;

    [[nodiscard]] static Deadline deadline_after(Deadline::duration duration) noexcept {
        const Deadline now = std::chrono::steady_clock::now();
        return duration < Deadline::max() - now ? now + duration : Deadline::max();
    }
    [[nodiscard]] Acquired<Lease> share(Acquired<typename Inner::Lease>&& inner) noexcept {
        return {inner.admission, Lease(*this, std::move(inner.lease))};
    }
    template <class Try>
    void wait_for_pages(std::unique_lock<std::mutex>& lock, detail::WaitQueue::Kind kind,
                        Deadline deadline, Try&& try_once);

    mutable detail::ShortMutex mutex_;  // guards all below, and the states of all leases
    detail::WaitQueue waiting_;
    std::uint64_t refused_tries_ =
        0;         // counted by the cache, but not the last try of their request
    Inner cache_;  // its destructor empties the leases that live on
};

/// Calls `try_once` until it says something else than exhausted, or the deadline has come.
template <page_source Pages, eviction_policy Policy, token_type T>
template <class Try>
void SharedRadixCache<Pages, Policy, T>::wait_for_pages(std::unique_lock<std::mutex>& lock,
                                                        detail::WaitQueue::Kind kind,
                                                        Deadline deadline, Try&& try_once) {
    detail::WaitQueue::Place place(waiting_, kind);
    for (bool in_time = true; in_time; in_time = place.wait(lock, deadline)) {
        if (!place.take_turn()) continue;
        if (try_once() != Admission::exhausted) return;
        ++refused_tries_;
        place.pass_on();
    }
    try_once();
}

template <page_source Pages, eviction_policy Policy, token_type T>
template <copy_hook Copy>
auto SharedRadixCache<Pages, Policy, T>::acquire_until(Tokens prompt, Deadline deadline,
                                                       const Namespace& name, Copy&& copy,
                                                       const RequestHints& hints)
    -> Acquired<Lease> {
    auto lock = mutex_.lock_to_read(prompt);
    Acquired<typename Inner::Lease> result;
    const std::size_t pages = prompt.size() / page_tokens() + (prompt.size() % page_tokens() != 0);
    if (pages > cache_.pages().capacity_pages()) {
        // The answer is known without standing in line for it.
        return share(cache_.acquire(prompt, name, copy, hints));
    }
    wait_for_pages(lock, detail::WaitQueue::Kind::new_request, deadline, [&] {
        result = cache_.acquire(prompt, name, copy, hints);
        return result.admission;
    });
    return share(std::move(result));
}

}  // namespace kvstem
