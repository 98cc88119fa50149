// SPDX-License-Identifier: MIT
// What an operator watches: hit rate, occupancy and evictions of each interval, what another
// capacity would hit, and at the end the text that Prometheus scrapes. The log goes to stderr, the
// text to stdout: examples/run watch_statistics | promtool check metrics

#include <cstdio>
#include <iterator>
#include <span>
#include <vector>

#include "kvstem/ghost.hpp"
#include "kvstem/prometheus.hpp"
#include "kvstem/radix_cache.hpp"
#include "kvstem/reference/random.hpp"
#include "support/tiny_paged_engine.hpp"

using kvstem::Token;
using Cache = kvstem::RadixCache<>;

namespace {

constexpr std::size_t capacity_pages = 512;
constexpr std::size_t page_tokens = 16;

/// Sixty conversations over one system prompt, each a turn longer whenever it is its turn.
class Traffic {
  public:
    std::span<const Token> next_prompt() {
        std::vector<Token>& text = conversations_[random_.next() % std::size(conversations_)];
        if (text.size() > 700 || text.empty()) text.assign(100, 7);
        for (int i = 0; i < 40; ++i) text.push_back(static_cast<Token>(random_.next() % 50'000));
        return text;
    }

  private:
    kvstem::reference::SplitMix64 random_{3};
    std::vector<Token> conversations_[60];
};

// Serves a request, and lets the ghosts see what was asked for.
bool serve(support::TinyPagedEngine& engine, Cache& cache, kvstem::GhostCache& ghosts,
           std::span<const Token> prompt) {
    auto [admission, lease] = cache.acquire(prompt);
    if (admission != kvstem::Admission::granted) return false;
    ghosts.observe(prompt);
    const auto rest = prompt.subspan(lease.adopted());
    engine.forward(rest, lease.adopted(), lease.block_table());
    lease.publish(rest);
    return true;
}

// Counters only grow, so what happened in an interval is the difference of two readings.
void log_interval(const kvstem::RadixCacheStats& before, const kvstem::RadixCacheStats& now,
                  const kvstem::GhostRates& ghosts) {
    const auto percent = [](auto part, auto all) {
        return all == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(all);
    };
    std::fprintf(
        stderr, "hit rate %4.1f %%  occupancy %5.1f %%  evicted %5llu pages  ",
        percent(now.hit_tokens - before.hit_tokens, now.queried_tokens - before.queried_tokens),
        percent(now.cached_pages, now.capacity_pages),
        static_cast<unsigned long long>(now.evicted_pages - before.evicted_pages));
    std::fprintf(stderr, "with x0.5 %4.1f %%  x1 %4.1f %%  x2 %4.1f %%  x4 %4.1f %%\n",
                 100 * ghosts.half_capacity, 100 * ghosts.capacity, 100 * ghosts.twice_capacity,
                 100 * ghosts.four_times_capacity);
}

}  // namespace

int main() {
    support::TinyPagedEngine engine(capacity_pages, page_tokens);
    Cache cache({.page_tokens = page_tokens}, kvstem::PagePool(capacity_pages));
    kvstem::GhostCache ghosts({.capacity_pages = capacity_pages, .page_tokens = page_tokens});
    Traffic traffic;
    kvstem::RadixCacheStats before;
    for (int interval = 0; interval < 5; ++interval) {
        for (int i = 0; i < 500; ++i) {
            if (!serve(engine, cache, ghosts, traffic.next_prompt())) return 1;
        }
        log_interval(before, cache.stats(), ghosts.rates());
        before = cache.stats();
    }

    // [readme:scrape]
    kvstem::PrometheusText metrics;
    metrics.add(cache, {{"cache", "chats"}, {"gpu", "0"}});
    metrics.add(ghosts, {{"cache", "chats"}, {"gpu", "0"}});
    std::fputs(metrics.text().c_str(), stdout);
    // [/readme:scrape]
    return engine.rows_computed() == before.missed_tokens ? 0 : 1;
}
