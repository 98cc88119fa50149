// SPDX-License-Identifier: MIT
// Prints the Prometheus text of everything that has statistics, with labels that need escaping.

#include <cstdio>

#include "kvstem/ghost.hpp"
#include "kvstem/page_pool.hpp"
#include "kvstem/prefix_cache.hpp"
#include "kvstem/prefix_cached_engine.hpp"
#include "kvstem/prometheus.hpp"
#include "kvstem/radix_cache.hpp"
#include "kvstem/reference/batcher.hpp"
#include "kvstem/shared_radix_cache.hpp"

int main() {
    const kvstem::MetricLabel labels[] = {{"model", "a \"b\" \\c\nd \xFF\xC3\xBC"}, {"gpu", ""}};
    kvstem::PrometheusText metrics;
    metrics.add(kvstem::PrefixCacheStats{}, labels);
    metrics.add(kvstem::RadixCacheStats{}, labels);
    metrics.add(kvstem::CachedEngineStats{}, labels);
    metrics.add(kvstem::PagePool(3), labels);
    metrics.add(kvstem::GhostRates{.half_capacity = 1e-9, .capacity = 1.0 / 3.0}, labels);
    metrics.add(kvstem::reference::BatcherStats{}, labels);
    const kvstem::SharedRadixCache<> shared({.page_tokens = 16}, kvstem::PagePool(4));
    metrics.add(shared, {{"model", "shared"}});
    metrics.add(shared);
    std::fputs(metrics.text().c_str(), stdout);
}
