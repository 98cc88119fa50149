// SPDX-License-Identifier: MIT
// The row of a full cache that takes in as much as it gives up: churn.

#include <cstddef>
#include <optional>
#include <string>

#include "bench.hpp"

namespace bench {
namespace {

constexpr std::size_t step_tokens = 512;

/// A full cache of sequences that share nothing. A step evicts 512 tokens, then publishes 512 new
/// ones: acquire, publish, release. Its tokens are made before the clock starts.
class Churn {
  public:
    Churn(std::size_t capacity_tokens, std::size_t page_tokens)
        : step_pages_(step_tokens / page_tokens),
          cache_({.page_tokens = page_tokens}, kvstem::PagePool(capacity_tokens / page_tokens)) {
        while (cache_.free_pages() >= step_pages_) {
            random_.fill(tokens_);
            serve(cache_, tokens_);
        }
    }

    /// Some steps; returns the mean time of their evictions, and keeps that of their publishes.
    /// Means, so that work put off by one step counts when another does it; of few steps, so that
    /// the median over many repetitions is of those that nothing else interrupted.
    Seconds evict_and_publish() {
        constexpr int steps = 500;
        Seconds evicting = 0;
        publishing_ = 0;
        for (int i = 0; i < steps; ++i) {
            random_.fill(tokens_);
            std::size_t evicted = 0;
            evicting += wall_time([&] { evicted = cache_.evict(step_pages_); });
            require(evicted == step_pages_, "a step has not evicted what it should");
            publishing_ += wall_time([&] { serve(cache_, tokens_); });
        }
        publishing_ = publishing_ / steps - clock_cost_;
        return evicting / steps - clock_cost_;
    }
    [[nodiscard]] Seconds publishing() const { return publishing_; }

  private:
    Seconds clock_cost_ = clock_cost();
    Seconds publishing_ = 0;
    std::size_t step_pages_;
    Random random_{11};
    Tokens tokens_ = Tokens(step_tokens);
    Cache cache_;
};

}  // namespace

/// What a publish at P = 1 waits for, timed with the processor's counter around each part where L
/// was 160 ns and the row came out between 4.0 and 4.3 L. (Together the parts are about 100 ns more
/// than that: so much do the counters cost, and what they keep from overlapping.)
///
///   - 105 ns for one line of the child table that nobody has touched for long. It is known which
///     only when the prompt is, and all else depends on it;
///   - 130 ns for 512 ids from the pool: 70 to write them, and 15 for each place at which the free
///     pages are not neighbours, 3 to 7 here. There are more of these the longer such traffic lasts:
///     an eviction of 512 pages that ends in the middle of a sequence cuts it for ever;
///   - 250 ns for 2 KB of tokens and 2 KB of ids that go to lines which are in no near cache. Asking
///     for the lines first, here or when the request comes, has gained nothing;
///   - 100 ns for the node and its place in the child table, which wait behind these stores;
///   - 200 ns for all else, the release included.
///
/// Each repetition begins behind a measurement of L, which leaves little in the caches. Without it
/// a publish takes about 3.5 L.
void churn_rows(Bench& bench) {
    if (!bench.wants({"churn"})) return;
    for (const std::size_t page_tokens : page_sizes) {
        Churn churn(bench.scaled(2'000'000), page_tokens);
        const auto medians = alternate(bench.rounds(61), {[&] { return bench.latency.measure(); },
                                                          [&] { return churn.evict_and_publish(); },
                                                          [&] { return churn.publishing(); }});
        std::optional<double> publish;
        std::optional<double> evict;
        if (page_tokens == 16) publish = 3.0, evict = 2.0;
        if (page_tokens == 1) publish = evict = 4.0;
        const std::string name = name_of(page_tokens);
        bench.add(
            {"churn", name + " publish", medians[2] * 1e9, medians[0] * 1e9, "ns", "L", publish});
        bench.add({"churn", name + " evict", medians[1] * 1e9, medians[0] * 1e9, "ns", "L", evict});
    }
}

}  // namespace bench
