// SPDX-License-Identifier: MIT
// Formatters for {fmt} 9 and later. The only header of the library that needs more than the
// standard library: include it where you print, and link fmt::fmt there.
//
//     fmt::print("{}\n", cache.stats());
//
// | type                                | looks like                                       |
// | ----------------------------------- | ------------------------------------------------ |
// | PrefixCacheStats, RadixCacheStats,  | hits=17 misses=1 queried_tokens=412 …            |
// | CachedEngineStats, BatcherStats     |                                                  |
// | GhostRates                          | half=0.3100 same=0.4200 twice=0.4700 …           |
// | SnapshotMatch, SnapshotHit          | 12 tokens with logits                            |
// | RadixMatch                          | 12 tokens cached, 8 adoptable                    |
// | TreeMatch                           | 12 pages to node 3 (2 of its pages)              |
// | Lease, SharedLease                  | adopted=8 written=9 published=8 capacity=12 pages 0 1 4 |
// | Acquired                            | granted: adopted=8 …, or exhausted               |
// | RadixCache, SharedRadixCache        | the picture of its tree (picture.hpp), several lines |
// | PagePool                            | 3 of 16 pages free                               |
// | StoreOutcome, Admission, FinishReason, EngineForm | replaced                           |
// | AuditReport                         | ok, or one finding a line                        |
// | AuditFinding                        | a node without pages (at 7)                      |
// | Namespace                           | adapter="lora" salt="" (what is there), or default |
// | PageId                              | 7, or none                                       |
//
// `to_prometheus(cache)` is in prometheus.hpp, which needs no {fmt}.
//
// Every one takes the format specification of a string: width, fill and alignment, as in {:>12}.
#pragma once

#include <fmt/core.h>
#include <fmt/format.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "audit.hpp"
#include "config.hpp"
#include "engine_concepts.hpp"
#include "ghost.hpp"
#include "lease.hpp"
#include "namespace.hpp"
#include "page_pool.hpp"
#include "picture.hpp"
#include "prefix_cache.hpp"
#include "prefix_cached_engine.hpp"
#include "radix_cache.hpp"
#include "radix_tree.hpp"
#include "shared_radix_cache.hpp"
#include "token.hpp"

namespace kvstem::inline KVSTEM_ABI::reference {
struct BatcherStats;  // named only: the batcher brings the decoder along
}

namespace kvstem::inline KVSTEM_ABI::detail {

using TextBuffer = fmt::memory_buffer;

template <class... Values>
void print_to(TextBuffer& out, fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(out), format, std::forward<Values>(values)...);
}

// One overload per type: what its text is. Layout is left to TextFormatter.

inline void write_text(TextBuffer& out, const PrefixCacheStats& stats) {
    print_to(out, "hits={} misses={} ", stats.hits, stats.misses);
    print_to(out, "queried_tokens={} hit_tokens={} missed_tokens={} ", stats.queried_tokens,
             stats.hit_tokens, stats.missed_tokens);
    print_to(out, "taken={} stored={} replaced={} refused={} evictions={} ", stats.taken,
             stats.stored, stats.replaced, stats.refused, stats.evictions);
    print_to(out, "entries={} bytes={} index_bytes={} namespaces={}", stats.entries, stats.bytes,
             stats.index_bytes, stats.namespaces);
}

inline void write_text(TextBuffer& out, const SnapshotMatch& match) {
    print_to(out, "{} tokens {} logits", match.tokens, match.has_logits ? "with" : "without");
}

inline void write_text(TextBuffer& out, StoreOutcome outcome) {
    switch (outcome) {
        case StoreOutcome::stored:
            return print_to(out, "stored");
        case StoreOutcome::replaced:
            return print_to(out, "replaced");
        case StoreOutcome::empty:
            return print_to(out, "empty");
        case StoreOutcome::too_large:
            return print_to(out, "too large");
    }
    print_to(out, "StoreOutcome({})", static_cast<int>(outcome));
}

inline void write_text(TextBuffer& out, const RadixCacheStats& stats) {
    print_to(out, "hits={} misses={} ", stats.hits, stats.misses);
    print_to(out, "queried_tokens={} hit_tokens={} missed_tokens={} partial_tokens={} ",
             stats.queried_tokens, stats.hit_tokens, stats.missed_tokens, stats.partial_tokens);
    print_to(out, "exhausted={} never_fits={} ", stats.exhausted, stats.never_fits);
    print_to(out, "published_pages={} duplicate_pages={} evicted_pages={} dropped_pages={} ",
             stats.published_pages, stats.duplicate_pages, stats.evicted_pages,
             stats.dropped_pages);
    print_to(out, "capacity_pages={} free_pages={} cached_pages={} ", stats.capacity_pages,
             stats.free_pages, stats.cached_pages);
    print_to(out, "pinned_pages={} evictable_pages={} ", stats.pinned_pages, stats.evictable_pages);
    print_to(out, "leases={} namespaces={} nodes={} index_bytes={}", stats.leases, stats.namespaces,
             stats.nodes, stats.index_bytes);
}

inline void write_text(TextBuffer& out, const CachedEngineStats& stats) {
    print_to(out, "hit_rate={:.4f} hits={} misses={} ", stats.hit_rate(), stats.hits, stats.misses);
    print_to(out, "queried_tokens={} reused_tokens={} missed_tokens={} computed_tokens={} ",
             stats.queried_tokens, stats.reused_tokens, stats.missed_tokens, stats.computed_tokens);
    print_to(out, "stored_blocks={} evicted_blocks={} blocks={} capacity_blocks={} bytes={}",
             stats.stored_blocks, stats.evicted_blocks, stats.blocks, stats.capacity_blocks,
             stats.bytes);
}

template <std::same_as<reference::BatcherStats> Stats>
void write_text(TextBuffer& out, const Stats& stats) {
    print_to(out, "steps={} tokens_computed={} preemptions={} peak_running={} peak_pages={}",
             stats.steps, stats.tokens_computed, stats.preemptions, stats.peak_running,
             stats.peak_pages);
}

inline void write_text(TextBuffer& out, const GhostRates& rates) {
    print_to(out, "half={:.4f} same={:.4f} twice={:.4f} four_times={:.4f} ", rates.half_capacity,
             rates.capacity, rates.twice_capacity, rates.four_times_capacity);
    print_to(out, "pages={} sampled_pages={}", rates.pages, rates.sampled_pages);
}

inline void write_text(TextBuffer& out, const PagePool& pool) {
    print_to(out, "{} of {} pages free", pool.free_pages(), pool.capacity_pages());
}

template <class KvCache, class Logits>
void write_text(TextBuffer& out, const SnapshotHit<KvCache, Logits>& hit) {
    print_to(out, "{} tokens {} logits{}", hit.tokens, hit.logits ? "with" : "without",
             hit.moved ? ", moved" : "");
}

inline void write_text(TextBuffer& out, const RadixMatch& match) {
    print_to(out, "{} tokens cached, {} adoptable", match.cached_tokens, match.adoptable_tokens);
}

inline void write_text(TextBuffer& out, Admission admission) {
    switch (admission) {
        case Admission::granted:
            return print_to(out, "granted");
        case Admission::exhausted:
            return print_to(out, "exhausted");
        case Admission::never_fits:
            return print_to(out, "never fits");
    }
    print_to(out, "Admission({})", static_cast<int>(admission));
}

inline void write_text(TextBuffer& out, FinishReason reason) {
    switch (reason) {
        case FinishReason::empty_prompt:
            return print_to(out, "empty prompt");
        case FinishReason::stop_token:
            return print_to(out, "stop token");
        case FinishReason::stopped:
            return print_to(out, "stopped");
        case FinishReason::length:
            return print_to(out, "length");
        case FinishReason::context_full:
            return print_to(out, "context full");
        case FinishReason::out_of_pages:
            return print_to(out, "out of pages");
    }
    print_to(out, "FinishReason({})", static_cast<int>(reason));
}

inline void write_text(TextBuffer& out, EngineForm form) {
    switch (form) {
        case EngineForm::paged:
            return print_to(out, "paged");
        case EngineForm::row:
            return print_to(out, "row");
        case EngineForm::state:
            return print_to(out, "state");
    }
    print_to(out, "EngineForm({})", static_cast<int>(form));
}

inline void write_text(TextBuffer& out, const AuditFinding& finding) {
    print_to(out, "{} (at {})", finding.what, finding.subject);
}

inline void write_text(TextBuffer& out, const AuditReport& report) {
    if (report.ok()) return print_to(out, "ok");
    const char* separator = "";
    for (const AuditFinding& finding : report.findings) {
        print_to(out, "{}", separator);
        write_text(out, finding);
        separator = "\n";
    }
}

inline void write_text(TextBuffer& out, const Namespace& name) {
    if (name.is_default()) return print_to(out, "default");
    const char* separator = "";
    const auto part = [&](const char* what, const std::optional<std::string_view>& value) {
        if (!value) return;
        print_to(out, "{}{}=", separator, what);
        // Quoted, so that the empty string, a space and a quote inside can be told apart.
        std::string quoted;
        append_printable(quoted, *value);
        print_to(out, "\"{}\"", quoted);
        separator = " ";
    };
    part("adapter", name.adapter);
    part("version", name.version);
    part("salt", name.salt);
}

inline void write_text(TextBuffer& out, PageId page) {
    if (page == no_page) return print_to(out, "none");
    print_to(out, "{}", index_of(page));
}

inline void write_text(TextBuffer& out, const TreeMatch& match) {
    print_to(out, "{} pages to node {} ({} of its pages)", match.pages,
             static_cast<std::uint32_t>(match.node), match.node_pages);
}

/// Of a Lease or a SharedLease. A page that has slid away is printed as a dash.
template <class AnyLease>
void write_lease(TextBuffer& out, const AnyLease& lease) {
    if (lease.empty()) return print_to(out, "empty");
    const auto table = lease.block_table();
    print_to(out, "adopted={} written={} published={} capacity={} {}", lease.adopted(),
             lease.written(), lease.published(), lease.capacity(),
             table.size() == 1 ? "page" : "pages");
    std::string pages;
    append_shortened(pages, table.size(), PictureOptions{}.most_pages, [&](std::size_t i) {
        pages += table[i] == no_page ? "-" : std::to_string(index_of(table[i]));
    });
    print_to(out, "{}", pages);
}
template <class Cache, class T>
void write_text(TextBuffer& out, const Lease<Cache, T>& lease) {
    write_lease(out, lease);
}
template <class SharedCache>
void write_text(TextBuffer& out, const SharedLease<SharedCache>& lease) {
    write_lease(out, lease);
}
template <class AnyLease>
void write_text(TextBuffer& out, const Acquired<AnyLease>& acquired) {
    write_text(out, acquired.admission);
    if (!acquired) return;
    print_to(out, ": ");
    write_text(out, acquired.lease);
}

/// Without the last line's end, like any other value.
template <class Pages, class Policy, class T>
void write_text(TextBuffer& out, const RadixCache<Pages, Policy, T>& cache) {
    std::string picture = to_text(cache);
    picture.pop_back();
    print_to(out, "{}", picture);
}
template <class Pages, class Policy, class T>
void write_text(TextBuffer& out, const SharedRadixCache<Pages, Policy, T>& cache) {
    cache.inspect([&](const auto& inner) { write_text(out, inner); });
}

/// Writes the text of a value aside and lays it out like a string.
template <class Value>
struct TextFormatter : fmt::formatter<fmt::string_view> {
    template <class Context>
    auto format(const Value& value, Context& context) const {
        TextBuffer text;
        write_text(text, value);
        return fmt::formatter<fmt::string_view>::format({text.data(), text.size()}, context);
    }
};

}  // namespace kvstem

template <>
struct fmt::formatter<kvstem::PrefixCacheStats>
    : kvstem::detail::TextFormatter<kvstem::PrefixCacheStats> {};
template <>
struct fmt::formatter<kvstem::SnapshotMatch>
    : kvstem::detail::TextFormatter<kvstem::SnapshotMatch> {};
template <>
struct fmt::formatter<kvstem::StoreOutcome> : kvstem::detail::TextFormatter<kvstem::StoreOutcome> {
};
template <>
struct fmt::formatter<kvstem::AuditFinding> : kvstem::detail::TextFormatter<kvstem::AuditFinding> {
};
template <>
struct fmt::formatter<kvstem::AuditReport> : kvstem::detail::TextFormatter<kvstem::AuditReport> {};
template <>
struct fmt::formatter<kvstem::Namespace> : kvstem::detail::TextFormatter<kvstem::Namespace> {};
template <>
struct fmt::formatter<kvstem::PageId> : kvstem::detail::TextFormatter<kvstem::PageId> {};
template <>
struct fmt::formatter<kvstem::TreeMatch> : kvstem::detail::TextFormatter<kvstem::TreeMatch> {};
template <>
struct fmt::formatter<kvstem::RadixCacheStats>
    : kvstem::detail::TextFormatter<kvstem::RadixCacheStats> {};
template <>
struct fmt::formatter<kvstem::CachedEngineStats>
    : kvstem::detail::TextFormatter<kvstem::CachedEngineStats> {};
template <>
struct fmt::formatter<kvstem::RadixMatch> : kvstem::detail::TextFormatter<kvstem::RadixMatch> {};
template <>
struct fmt::formatter<kvstem::Admission> : kvstem::detail::TextFormatter<kvstem::Admission> {};
template <>
struct fmt::formatter<kvstem::FinishReason> : kvstem::detail::TextFormatter<kvstem::FinishReason> {
};
template <>
struct fmt::formatter<kvstem::EngineForm> : kvstem::detail::TextFormatter<kvstem::EngineForm> {};
template <>
struct fmt::formatter<kvstem::GhostRates> : kvstem::detail::TextFormatter<kvstem::GhostRates> {};
template <>
struct fmt::formatter<kvstem::PagePool> : kvstem::detail::TextFormatter<kvstem::PagePool> {};
template <>
struct fmt::formatter<kvstem::reference::BatcherStats>
    : kvstem::detail::TextFormatter<kvstem::reference::BatcherStats> {};
template <class KvCache, class Logits>
struct fmt::formatter<kvstem::SnapshotHit<KvCache, Logits>>
    : kvstem::detail::TextFormatter<kvstem::SnapshotHit<KvCache, Logits>> {};
template <class Cache, class T>
struct fmt::formatter<kvstem::Lease<Cache, T>>
    : kvstem::detail::TextFormatter<kvstem::Lease<Cache, T>> {};
template <class SharedCache>
struct fmt::formatter<kvstem::SharedLease<SharedCache>>
    : kvstem::detail::TextFormatter<kvstem::SharedLease<SharedCache>> {};
template <class AnyLease>
struct fmt::formatter<kvstem::Acquired<AnyLease>>
    : kvstem::detail::TextFormatter<kvstem::Acquired<AnyLease>> {};
template <class Pages, class Policy, class T>
struct fmt::formatter<kvstem::RadixCache<Pages, Policy, T>>
    : kvstem::detail::TextFormatter<kvstem::RadixCache<Pages, Policy, T>> {};
template <class Pages, class Policy, class T>
struct fmt::formatter<kvstem::SharedRadixCache<Pages, Policy, T>>
    : kvstem::detail::TextFormatter<kvstem::SharedRadixCache<Pages, Policy, T>> {};
