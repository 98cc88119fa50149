// SPDX-License-Identifier: MIT
// Every policy against a model that keeps a record for each page and looks at all of them.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "catch.hpp"
#include "kvstem/policy/fifo.hpp"
#include "kvstem/policy/hazard.hpp"
#include "kvstem/policy/length_aware.hpp"
#include "kvstem/policy/lfu.hpp"
#include "kvstem/policy/lfu_aging.hpp"
#include "kvstem/policy/priority.hpp"
#include "kvstem/policy/s3_fifo.hpp"
#include "kvstem/policy/slru.hpp"
#include "kvstem/radix_cache.hpp"
#include "kvstem/reference/random.hpp"
#include "support/page_models.hpp"
#include "support/test_scale.hpp"

using namespace kvstem_test;
using kvstem::RadixCache;
using kvstem::Retention;

namespace {

/// Random requests, some of which stay for a while, against a RadixCache and a model of it. After
/// each step the same prefixes must be cached.
template <class Policy, class Model>
class PolicyRun {
  public:
    PolicyRun(std::uint64_t seed, std::size_t page_tokens, std::size_t capacity, Policy policy,
              Model model)
        : page_tokens_(page_tokens),
          capacity_(capacity),
          cache_({.page_tokens = page_tokens}, PagePool(capacity), std::move(policy)),
          model_(std::move(model)),
          random_(seed) {}

    void run(int steps) {
        for (int i = 0; i < steps; ++i) {
            const std::uint64_t op = random_.next() % 32;
            if (op < 20)
                request();
            else if (op < 23 && !leases_.empty())
                publish(random_.next() % leases_.size());
            else if (op < 29 && !leases_.empty())
                release(random_.next() % leases_.size());
            else if (op < 31)
                evict(random_.next() % 4);
            else if (random_.next() % 8 == 0)
                clear();
            check();
        }
    }

    Model& model() { return model_; }
    [[nodiscard]] const std::uint64_t& now() const { return now_; }

  private:
    using Lease = typename RadixCache<PagePool, Policy>::Lease;
    struct Holder {
        Lease lease;
        ModelPath path;
        std::size_t shared = 0;    // leading pages that the tree holds
        std::size_t private_ = 0;  // pages that are the lease's own, duplicates included
        std::uint64_t tree = 0;
        std::vector<Retention> wanted;
        std::uint64_t granted = 0;
    };

    Tokens tokens_of(const ModelPath& path) const {
        Tokens tokens;
        for (const int number : path) {
            for (std::size_t i = 0; i < page_tokens_; ++i) {
                // Pages differ in their last token only.
                tokens.push_back(i + 1 == page_tokens_ ? number : 7);
            }
        }
        return tokens;
    }
    bool is_pinned(const ModelPath& path) const {
        for (const Holder& h : leases_) {
            if (h.tree == tree_ && h.shared >= path.size() &&
                prefix_of(h.path, path.size()) == path)
                return true;
        }
        return false;
    }
    std::set<ModelPath> evictable_leaves() const {
        std::set<ModelPath> leaves;
        for (auto i = pages_.begin(); i != pages_.end(); ++i) {
            // The next path in the map continues this one if any does.
            const auto next = std::next(i);
            const bool has_child = next != pages_.end() && next->first.size() > i->first.size() &&
                                   prefix_of(next->first, i->first.size()) == i->first;
            if (!has_child && !is_pinned(i->first)) leaves.insert(i->first);
        }
        return leaves;
    }
    std::size_t evictable() const {
        std::size_t n = 0;
        for (const auto& [path, page] : pages_) n += is_pinned(path) ? 0 : 1;
        return n;
    }
    std::size_t free() const {
        std::size_t held = pages_.size();
        std::set<std::pair<std::uint64_t, ModelPath>> detached;
        for (const Holder& h : leases_) {
            held += h.private_;
            for (std::size_t n = 1; h.tree != tree_ && n <= h.shared; ++n) {
                detached.insert({h.tree, prefix_of(h.path, n)});
            }
        }
        return capacity_ - held - detached.size();
    }
    std::size_t evict_pages(std::size_t wanted) {
        std::size_t done = 0;
        for (; done < wanted; ++done) {
            const auto leaves = evictable_leaves();
            if (leaves.empty()) break;
            const ModelPath victim = model_.choose(pages_, leaves);
            const ModelPage page = pages_.at(victim);
            pages_.erase(victim);
            model_.evicted(victim, page);
        }
        return done;
    }
    /// Runs are cut where an adoption or a common part ends.
    void cut_run(const ModelPath& path, std::size_t pages) {
        if (pages == 0 || pages_.count(prefix_of(path, pages)) == 0) return;
        const ModelPath end = prefix_of(path, pages);
        const std::uint64_t run = pages_.at(end).run;
        const std::uint64_t lower = ++runs_;
        for (auto& [p, page] : pages_) {
            if (page.run == run && p.size() > pages && prefix_of(p, pages) == end) page.run = lower;
        }
    }
    void retain(const Holder& h, std::size_t page) {
        for (const Retention& r : h.wanted) {
            const std::size_t token = (page - 1) * page_tokens_;
            if (token < r.first_token || token >= r.end_token) continue;
            ModelPage& at = pages_.at(prefix_of(h.path, page));
            at.priority = r.priority;
            at.until = r.duration == Retention::for_ever ? r.duration : h.granted + r.duration;
        }
    }

    void request() {
        Holder h;
        const std::size_t length = 1 + random_.next() % 7;
        for (std::size_t i = 0; i < length; ++i) {
            h.path.push_back(static_cast<int>(random_.next() % (i < 2 ? 2 : 3)));
        }
        Tokens prompt = tokens_of(h.path);
        prompt.push_back(0);
        for (std::uint64_t n = random_.next() % 3; n > 0; --n) {
            const std::size_t first = random_.next() % prompt.size();
            h.wanted.push_back(
                {first, first + static_cast<std::size_t>(random_.next() % 9),
                 static_cast<std::uint8_t>(random_.next() % 101),
                 random_.next() % 2 == 0 ? Retention::for_ever : random_.next() % 20});
        }
        while (h.shared < length && pages_.count(prefix_of(h.path, h.shared + 1)) != 0) ++h.shared;
        h.private_ = length + 1 - h.shared;
        h.tree = tree_;
        auto acquired = cache_.acquire(prompt, {}, {.retention = h.wanted});

        leases_.push_back(std::move(h));  // its pins count from now on
        Holder& at = leases_.back();
        const std::size_t fresh = std::exchange(at.private_, 0);
        const bool fits = length + 1 <= capacity_ && free() + evictable() >= fresh;
        REQUIRE(acquired.operator bool() == fits);
        if (!fits) {
            leases_.pop_back();
            return;
        }
        at.granted = ++now_;
        ++ticks_;
        REQUIRE(acquired.lease.adopted() == at.shared * page_tokens_);
        at.lease = std::move(acquired.lease);
        cut_run(at.path, at.shared);
        for (std::size_t n = at.shared; n > 0; --n) {
            ModelPage& page = pages_.at(prefix_of(at.path, n));
            page.touched = ticks_;
            ++page.touches;
            model_.touch(pages_, prefix_of(at.path, n));
            retain(at, n);
        }
        if constexpr (requires { model_.settle(pages_); }) model_.settle(pages_);
        const std::size_t available = free();
        if (available < fresh) evict_pages(fresh - available);
        at.private_ = fresh;
        at.lease.wrote(std::span(prompt)
                           .subspan(at.lease.adopted())
                           .first((length - at.shared) * page_tokens_));
        if (random_.next() % 4 != 0) publish(leases_.size() - 1);
        if (random_.next() % 3 != 0) release(leases_.size() - 1);
    }
    void publish(std::size_t which) {
        Holder& h = leases_[which];
        h.lease.publish();
        if (h.tree != tree_) return;
        std::size_t known = h.shared;
        while (known < h.path.size() && pages_.count(prefix_of(h.path, known + 1)) != 0) ++known;
        if (known > h.shared) cut_run(h.path, known);
        std::vector<ModelPath> added;
        const std::uint64_t run = ++runs_;
        if (known < h.path.size()) ++ticks_;
        for (std::size_t n = known + 1; n <= h.path.size(); ++n) {
            added.push_back(prefix_of(h.path, n));
            ModelPage& page = pages_[added.back()];
            page.inserted = page.touched = ticks_;
            page.depth = n;
            page.run = run;
            model_.insert(pages_, added.back());
            retain(h, n);
        }
        if constexpr (requires { model_.insert_run(pages_, added); }) {
            if (!added.empty()) model_.insert_run(pages_, added);
        }
        if (!added.empty() && known > 0) cut_run(h.path, known);
        h.private_ -= added.size();
        h.shared = h.path.size();
    }
    void release(std::size_t which) {
        leases_.erase(leases_.begin() + static_cast<std::ptrdiff_t>(which));
    }
    void evict(std::size_t pages) { REQUIRE(cache_.evict(pages) == evict_pages(pages)); }
    void clear() {
        cache_.clear();
        pages_.clear();
        ++tree_;
    }
    void check() {
        REQUIRE(cache_.cached_pages() == pages_.size());
        REQUIRE(cache_.free_pages() == free());
        for (const auto& [path, page] : pages_) {
            REQUIRE(cache_.peek(tokens_of(path)).cached_tokens == path.size() * page_tokens_);
        }
        REQUIRE(cache_.audit().ok());
    }

    std::size_t page_tokens_;
    std::size_t capacity_;
    RadixCache<PagePool, Policy> cache_;
    Model model_;
    kvstem::reference::SplitMix64 random_;
    ModelPages pages_;
    std::vector<Holder> leases_;
    std::uint64_t tree_ = 0;
    std::uint64_t now_ = 0;
    std::uint64_t runs_ = 0;
    std::uint64_t ticks_ = 0;  // requests and publications
};

template <class Policy, class MakeModel>
void follow(MakeModel make_model) {
    const int steps = large_test_divisor == 1 ? 400 : 120;
    for (unsigned seed = 0; seed < 12 * test_scale(); ++seed) {
        const std::size_t page_tokens = seed % 3 + 1;
        const std::size_t capacity = 12 + seed % 4 * 9;
        INFO("seed " << seed);
        PolicyRun run(seed, page_tokens, capacity, Policy{}, make_model(capacity));
        run.run(steps);
    }
}

}  // namespace

TEST_CASE("FIFO evicts the leaf published the longest ago", "[E6]") {
    follow<kvstem::FirstInFirstOut>([](std::size_t) { return fifo_model(); });
}
TEST_CASE("LFU evicts the leaf adopted the fewest times", "[E6]") {
    follow<kvstem::LeastFrequentlyUsed>([](std::size_t) { return lfu_model(); });
}
TEST_CASE("LFU with ageing evicts the leaf of the lowest value", "[E6]") {
    follow<kvstem::FrequencyWithAgeing>([](std::size_t) { return AgeingModel{}; });
}
TEST_CASE("length-aware evicts the deepest of the leaves adopted the fewest times", "[E6]") {
    follow<kvstem::LengthAware>([](std::size_t) { return length_aware_model(); });
}
TEST_CASE("SLRU protects what was adopted, up to four fifths of the capacity", "[E6]") {
    follow<kvstem::SegmentedLru>(
        [](std::size_t capacity) { return SegmentedModel{capacity / 5 * 4}; });
}
TEST_CASE("S3-FIFO moves leaves through its queues as its contract says", "[E6]") {
    follow<kvstem::S3Fifo>([](std::size_t capacity) { return S3FifoModel{capacity}; });
}
TEST_CASE("priorities hold for their duration and then fall back", "[E6]") {
    const int steps = large_test_divisor == 1 ? 400 : 120;
    for (unsigned seed = 0; seed < 12 * test_scale(); ++seed) {
        INFO("seed " << seed);
        PolicyRun run(seed, seed % 3 + 1, 12 + seed % 4 * 9, kvstem::PriorityThenRecency<>{},
                      PriorityModel{nullptr});
        run.model().now = &run.now();
        run.run(steps);
    }
}
