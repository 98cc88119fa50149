// SPDX-License-Identifier: MIT
// Formatters for {fmt} 9 and later. The only header of the library that needs more than the
// standard library: include it where you print, and link fmt::fmt there.
//
//     fmt::print("{}\n", cache.stats());
//
// | type             | looks like                                                  |
// | ---------------- | ----------------------------------------------------------- |
// | PrefixCacheStats | hits=17 misses=1 queried_tokens=412 … : one line for a log  |
// | RadixCacheStats, CachedEngineStats | the same                                  |
// | SnapshotMatch    | 12 tokens with logits                                       |
// | RadixMatch       | 12 tokens cached, 8 adoptable                               |
// | StoreOutcome, Admission, FinishReason, EngineForm | replaced                   |
// | AuditReport      | ok, or one finding a line                                   |
// | AuditFinding     | a node without pages (at 7)                                 |
// | Namespace        | adapter="lora" salt="", or default; what is absent is left out |
// | PageId           | 7, or none                                                  |
// | TreeMatch        | 12 pages to node 3 (2 of its pages)                         |
//
// And `to_prometheus(stats)`: the text exposition of all statistics.
//
// Every one takes the format specification of a string: width, fill and alignment, as in {:>12}.
#pragma once

#include <fmt/core.h>
#include <fmt/format.h>

#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "audit.hpp"
#include "config.hpp"
#include "engine_concepts.hpp"
#include "lease.hpp"
#include "namespace.hpp"
#include "prefix_cache.hpp"
#include "prefix_cached_engine.hpp"
#include "radix_cache.hpp"
#include "radix_tree.hpp"
#include "token.hpp"

namespace kvstem::inline KVSTEM_ABI {

/// A label of every sample that `to_prometheus` writes.
struct MetricLabel {
    std::string_view name;
    std::string_view value;
};

}  // namespace kvstem

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

/// Quoted, so that the empty string, a space and a quote inside can be told apart.
inline void write_quoted(TextBuffer& out, std::string_view text) {
    print_to(out, "\"");
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            print_to(out, "\\{}", c);
        } else if (byte < 0x20 || byte == 0x7F) {
            print_to(out, "\\x{:02x}", byte);
        } else {
            print_to(out, "{}", c);
        }
    }
    print_to(out, "\"");
}

inline void write_text(TextBuffer& out, const Namespace& name) {
    if (name.is_default()) return print_to(out, "default");
    const char* separator = "";
    const auto part = [&](const char* what, const std::optional<std::string_view>& value) {
        if (!value) return;
        print_to(out, "{}{}=", separator, what);
        write_quoted(out, *value);
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

/// One metric of the text exposition format: its help and type lines, and its one sample.
template <class Number>
void write_metric(TextBuffer& out, std::string_view name, std::string_view type,
                  std::string_view help, std::string_view labels, Number value) {
    print_to(out, "# HELP kvstem_{} {}\n# TYPE kvstem_{} {}\n", name, help, name, type);
    print_to(out, "kvstem_{}{} {}\n", name, labels, value);
}

/// The metrics of one cache, written one after another with the same labels.
struct MetricsWriter {
    TextBuffer& out;
    std::string_view labels;
    void counter(std::string_view name, std::string_view help, std::uint64_t value) const {
        write_metric(out, name, "counter", help, labels, value);
    }
    void gauge(std::string_view name, std::string_view help, std::size_t value) const {
        write_metric(out, name, "gauge", help, labels, value);
    }
};

inline void write_metrics(const MetricsWriter& to, const PrefixCacheStats& stats) {
    to.counter("snapshot_hits_total", "Lookups that found a snapshot.", stats.hits);
    to.counter("snapshot_misses_total", "Lookups that found none.", stats.misses);
    to.counter("snapshot_queried_tokens_total", "Tokens of all prompts looked up.",
               stats.queried_tokens);
    to.counter("snapshot_hit_tokens_total", "Of these, tokens whose KV was reused.",
               stats.hit_tokens);
    to.counter("snapshot_missed_tokens_total", "Of these, tokens left to compute.",
               stats.missed_tokens);
    to.counter("snapshot_taken_total", "Hits that moved the snapshot out.", stats.taken);
    to.counter("snapshot_stored_total", "Snapshots stored or replaced.", stats.stored);
    to.counter("snapshot_replaced_total", "Of these, replaced.", stats.replaced);
    to.counter("snapshot_refused_total", "Snapshots larger than the capacity.", stats.refused);
    to.counter("snapshot_evictions_total", "Snapshots evicted to make room.", stats.evictions);
    to.gauge("snapshot_entries", "Snapshots held.", stats.entries);
    to.gauge("snapshot_bytes", "Bytes of KV, logits and tokens held.", stats.bytes);
    to.gauge("snapshot_index_bytes", "Bytes of the index.", stats.index_bytes);
    to.gauge("snapshot_namespaces", "Namespaces beside the default one.", stats.namespaces);
}

inline void write_metrics(const MetricsWriter& to, const RadixCacheStats& stats) {
    to.counter("page_hits_total", "Granted requests that adopted something.", stats.hits);
    to.counter("page_misses_total", "Granted requests that adopted nothing.", stats.misses);
    to.counter("page_queried_tokens_total", "Prompt tokens of granted requests.",
               stats.queried_tokens);
    to.counter("page_hit_tokens_total", "Of these, tokens adopted.", stats.hit_tokens);
    to.counter("page_missed_tokens_total", "Of these, tokens left to compute.",
               stats.missed_tokens);
    to.counter("page_partial_tokens_total",
               "Of the adopted, copied from a page that agreed in part.", stats.partial_tokens);
    to.counter("page_exhausted_total", "Requests for pages refused for now.", stats.exhausted);
    to.counter("page_never_fits_total", "Requests for pages refused for good.", stats.never_fits);
    to.counter("page_published_total", "Page groups that entered the tree.", stats.published_pages);
    to.counter("page_duplicates_total", "Page groups published that stood there already.",
               stats.duplicate_pages);
    to.counter("page_evicted_total", "Page groups evicted.", stats.evicted_pages);
    to.counter("page_dropped_total", "Page groups dropped by clear or drop.", stats.dropped_pages);
    to.gauge("page_capacity", "Page groups there are.", stats.capacity_pages);
    to.gauge("page_free", "Page groups held by nobody.", stats.free_pages);
    to.gauge("page_cached", "Page groups in the tree.", stats.cached_pages);
    to.gauge("page_pinned", "Of these, read by a lease.", stats.pinned_pages);
    to.gauge("page_evictable", "Of these, read by nobody.", stats.evictable_pages);
    to.gauge("page_leases", "Leases that live.", stats.leases);
    to.gauge("page_namespaces", "Namespaces beside the default one.", stats.namespaces);
    to.gauge("page_nodes", "Nodes of the tree.", stats.nodes);
    to.gauge("page_index_bytes", "Bytes of the index.", stats.index_bytes);
}

inline void write_metrics(const MetricsWriter& to, const CachedEngineStats& stats) {
    to.counter("engine_hits_total", "Calls that reused something.", stats.hits);
    to.counter("engine_misses_total", "Calls that reused nothing.", stats.misses);
    to.counter("engine_queried_tokens_total", "Prompt tokens of all calls.", stats.queried_tokens);
    to.counter("engine_reused_tokens_total", "Of these, tokens reused.", stats.reused_tokens);
    to.counter("engine_missed_tokens_total", "Of these, tokens computed.", stats.missed_tokens);
    to.counter("engine_computed_tokens_total", "Tokens computed, answers included.",
               stats.computed_tokens);
    to.counter("engine_stored_blocks_total", "Blocks that entered the cache.", stats.stored_blocks);
    to.counter("engine_evicted_blocks_total", "Blocks that left it to make room.",
               stats.evicted_blocks);
    to.gauge("engine_blocks", "Blocks held.", stats.blocks);
    to.gauge("engine_capacity_blocks", "The most blocks there can be.", stats.capacity_blocks);
    to.gauge("engine_bytes", "Bytes of KV held.", stats.bytes);
}

/// {name="value",…} with the escapes of the format: backslash, quote and line feed.
inline void write_labels(TextBuffer& out, std::span<const MetricLabel> labels) {
    const char* separator = "{";
    for (const MetricLabel& label : labels) {
        print_to(out, "{}{}=\"", separator, label.name);
        for (const char c : label.value) {
            if (c == '\n') {
                print_to(out, "\\n");
            } else if (c == '"' || c == '\\') {
                print_to(out, "\\{}", c);
            } else {
                print_to(out, "{}", c);
            }
        }
        print_to(out, "\"");
        separator = ",";
    }
    if (!labels.empty()) print_to(out, "}}");
}

}  // namespace kvstem

namespace kvstem::inline KVSTEM_ABI {

/// The statistics of a cache in Prometheus' text exposition format, version 0.0.4: for each a line
/// of help, one of its type, and one sample with the given labels. Counters end in _total. `stats`
/// is a PrefixCacheStats, RadixCacheStats or CachedEngineStats. Label names must be valid for the
/// format ([a-zA-Z_][a-zA-Z0-9_]*); values may be anything.
///
///     const kvstem::MetricLabel labels[] = {{"model", "llama-8b"}};
///     fmt::print("{}", kvstem::to_prometheus(cache.stats(), labels));
template <class Stats>
[[nodiscard]] std::string to_prometheus(const Stats& stats,
                                        std::span<const MetricLabel> labels = {}) {
    detail::TextBuffer label_text;
    detail::write_labels(label_text, labels);
    detail::TextBuffer out;
    detail::write_metrics({out, {label_text.data(), label_text.size()}}, stats);
    return {out.data(), out.size()};
}

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
