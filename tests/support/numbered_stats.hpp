// SPDX-License-Identifier: MIT
// Statistics in which every number is another one, so that two that are swapped in a text show.
#pragma once

#include "kvstem/prefix_cache.hpp"
#include "kvstem/prefix_cached_engine.hpp"
#include "kvstem/radix_cache.hpp"

namespace kvstem_test {

inline constexpr kvstem::PrefixCacheStats numbered_snapshot_stats{.hits = 1,
                                                                  .misses = 2,
                                                                  .queried_tokens = 3,
                                                                  .hit_tokens = 4,
                                                                  .missed_tokens = 5,
                                                                  .taken = 6,
                                                                  .stored = 7,
                                                                  .replaced = 8,
                                                                  .refused = 9,
                                                                  .evictions = 10,
                                                                  .entries = 11,
                                                                  .bytes = 12,
                                                                  .index_bytes = 13,
                                                                  .namespaces = 14};
inline constexpr kvstem::RadixCacheStats numbered_page_stats{.hits = 1,
                                                             .misses = 2,
                                                             .queried_tokens = 3,
                                                             .hit_tokens = 4,
                                                             .missed_tokens = 5,
                                                             .partial_tokens = 6,
                                                             .exhausted = 7,
                                                             .never_fits = 8,
                                                             .published_pages = 9,
                                                             .duplicate_pages = 10,
                                                             .evicted_pages = 11,
                                                             .dropped_pages = 12,
                                                             .capacity_pages = 13,
                                                             .free_pages = 14,
                                                             .cached_pages = 15,
                                                             .pinned_pages = 16,
                                                             .evictable_pages = 17,
                                                             .leases = 18,
                                                             .namespaces = 19,
                                                             .nodes = 20,
                                                             .index_bytes = 21};
inline constexpr kvstem::CachedEngineStats numbered_engine_stats{.hits = 1,
                                                                 .misses = 2,
                                                                 .queried_tokens = 3,
                                                                 .reused_tokens = 4,
                                                                 .missed_tokens = 5,
                                                                 .computed_tokens = 6,
                                                                 .stored_blocks = 7,
                                                                 .evicted_blocks = 8,
                                                                 .blocks = 9,
                                                                 .capacity_blocks = 10,
                                                                 .bytes = 11};

}  // namespace kvstem_test
