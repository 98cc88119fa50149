// SPDX-License-Identifier: MIT
// All statistics as Prometheus text. Needs the standard library only.
//
//     reply(200, "text/plain; version=0.0.4", kvstem::to_prometheus(cache));
//
// A program with several caches tells them apart by labels and writes one text for all of them:
//
//     kvstem::PrometheusText text;
//     text.add(chats, {{"cache", "chats"}});
//     text.add(jobs, {{"cache", "jobs"}});
//     reply(200, "text/plain; version=0.0.4", text.text());
//
// | what is added                                  | metrics                                   |
// | ---------------------------------------------- | ----------------------------------------- |
// | PrefixCache, or its PrefixCacheStats           | kvstem_snapshot_…                         |
// | RadixCache, or its RadixCacheStats             | kvstem_page_…                             |
// | SharedRadixCache                               | the same, and how many requests wait      |
// | PrefixCachedEngine, or its CachedEngineStats   | kvstem_engine_…                           |
// | PagePool                                       | kvstem_pool_…                             |
// | GhostCache, or its GhostRates                  | kvstem_ghost_…                            |
// | reference::Batcher, or its BatcherStats        | kvstem_batcher_…                          |
#pragma once

#include <algorithm>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config.hpp"
#include "detail/utf8.hpp"
#include "errors.hpp"
#include "ghost.hpp"
#include "page_pool.hpp"
#include "prefix_cache.hpp"
#include "prefix_cached_engine.hpp"
#include "radix_cache.hpp"

namespace kvstem::inline KVSTEM_ABI::reference {
struct BatcherStats;  // named only: the batcher brings the decoder along
}

namespace kvstem::inline KVSTEM_ABI {

/// A label of every sample of one `add`. The name must match [a-zA-Z_][a-zA-Z0-9_]* and not begin
/// with two underscores, which the format keeps for itself; the value may be anything: it is
/// escaped, and bytes that are not UTF-8 are replaced by U+FFFD.
struct MetricLabel {
    std::string_view name;
    std::string_view value;
};

namespace detail {

/// One sample, with what its family is called. The strings that are views have static storage.
struct Metric {
    std::string_view name;
    std::string_view type;
    std::string_view help;
    std::string labels;  // {name="value",…} in the order of the names, or nothing
    std::string value;
};

inline bool is_label_name(std::string_view name) noexcept {
    const auto is_letter = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    };
    if (name.empty() || !is_letter(name[0]) || name.substr(0, 2) == "__") return false;
    return std::all_of(name.begin(), name.end(),
                       [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

inline void append_label_value(std::string& out, std::string_view value) {
    while (!value.empty()) {
        const std::size_t length = utf8_length(value);
        if (length == 0) {
            out += "\xEF\xBF\xBD";
        } else if (value[0] == '\n') {
            out += "\\n";
        } else {
            if (value[0] == '"' || value[0] == '\\') out += '\\';
            out += value.substr(0, length);
        }
        value.remove_prefix(std::max<std::size_t>(length, 1));
    }
}

/// In the order of the names, so that equal sets of labels are equal texts.
inline std::string label_text(std::vector<MetricLabel> labels) {
    std::sort(labels.begin(), labels.end(),
              [](const MetricLabel& a, const MetricLabel& b) { return a.name < b.name; });
    std::string text;
    for (std::size_t i = 0; i < labels.size(); ++i) {
        const std::string name(labels[i].name);
        if (!is_label_name(name)) fail<InvalidArgument>("\"%s\" is no label name", name.c_str());
        if (i > 0 && labels[i - 1].name == name) {
            fail<InvalidArgument>("the label \"%s\" is given twice", name.c_str());
        }
        text += i == 0 ? '{' : ',';
        text += name;
        text += "=\"";
        append_label_value(text, labels[i].value);
        text += '"';
    }
    if (!text.empty()) text += '}';
    return text;
}

/// Takes the metrics of one source down, all with the same labels.
class MetricsWriter {
  public:
    MetricsWriter(std::vector<Metric>& out, std::vector<MetricLabel> labels)
        : out_(out), labels_(std::move(labels)), label_text_(label_text(labels_)) {}

    void counter(std::string_view name, std::string_view help, std::uint64_t value) {
        out_.push_back({name, "counter", help, label_text_, std::to_string(value)});
    }
    void gauge(std::string_view name, std::string_view help, std::size_t value) {
        out_.push_back({name, "gauge", help, label_text_, std::to_string(value)});
    }
    /// A share from 0 to 1, with one label more.
    void ratio(std::string_view name, std::string_view help, MetricLabel label, double value) {
        std::vector<MetricLabel> labels = labels_;
        labels.push_back(label);
        char digits[32];
        const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
        out_.push_back({name, "gauge", help, label_text(std::move(labels)), {digits, end}});
    }

  private:
    std::vector<Metric>& out_;
    std::vector<MetricLabel> labels_;
    std::string label_text_;
};

inline void write_metrics(MetricsWriter& to, const PrefixCacheStats& stats) {
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

inline void write_metrics(MetricsWriter& to, const RadixCacheStats& stats) {
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

inline void write_metrics(MetricsWriter& to, const CachedEngineStats& stats) {
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

inline void write_metrics(MetricsWriter& to, const PagePool& pool) {
    to.gauge("pool_capacity_pages", "Page groups of the pool.", pool.capacity_pages());
    to.gauge("pool_free_pages", "Of these, held by nobody.", pool.free_pages());
    to.gauge("pool_bytes", "Bytes that the pool needs to keep count.", pool.bytes());
}

inline void write_metrics(MetricsWriter& to, const GhostRates& rates) {
    const auto at = [&](std::string_view times, double rate) {
        to.ratio("ghost_hit_ratio", "Estimated page hit rate of LRU at a multiple of the capacity.",
                 {"times_capacity", times}, rate);
    };
    at("0.5", rates.half_capacity);
    at("1", rates.capacity);
    at("2", rates.twice_capacity);
    at("4", rates.four_times_capacity);
    to.counter("ghost_pages_total", "Whole pages of all prompts observed.", rates.pages);
    to.counter("ghost_sampled_pages_total", "Of these, in the sample.", rates.sampled_pages);
}

inline void write_metrics(MetricsWriter& to, const GhostCache& ghosts) {
    write_metrics(to, ghosts.rates());
}

template <std::same_as<reference::BatcherStats> Stats>
void write_metrics(MetricsWriter& to, const Stats& stats) {
    to.counter("batcher_steps_total", "Steps in which anything was computed.", stats.steps);
    to.counter("batcher_computed_tokens_total", "Tokens computed.", stats.tokens_computed);
    to.counter("batcher_preemptions_total", "Jobs put back to begin again.", stats.preemptions);
    to.gauge("batcher_peak_running", "The most jobs that ran at once.", stats.peak_running);
    to.gauge("batcher_peak_pages", "The most page groups held during a step.", stats.peak_pages);
}

/// Whatever has `stats()`: the caches, the wrapper, the batcher.
template <class Cache>
    requires requires(const Cache& cache) { cache.stats(); }
void write_metrics(MetricsWriter& to, const Cache& cache) {
    write_metrics(to, cache.stats());
    if constexpr (requires { cache.waiting_requests(); }) {
        to.gauge("page_waiting_requests", "Requests that wait for pages.",
                 cache.waiting_requests());
    }
}

template <class Source>
concept metrics_source =
    requires(MetricsWriter& to, const Source& source) { detail::write_metrics(to, source); };

}  // namespace detail

/// Collects statistics and writes them in Prometheus' text exposition format, version 0.0.4: for
/// each family a line of help, a line of its type, then all its samples, as the format demands; the
/// families in the order in which they came. Counters end in _total.
///
/// Complexity: `add` O(samples added × samples so far), `text` O(families × samples).
/// Exceptions: InvalidArgument for a label name that the format does not allow or that is given
/// twice, and for a source that was added before under the same labels (a scrape with two equal
/// series is refused as a whole); std::bad_alloc. Either changes nothing. Threads: none of its own;
/// of a cache it calls `stats` once, and of a shared one `waiting_requests`, too.
class PrometheusText {
  public:
    template <detail::metrics_source Source>
    void add(const Source& source, std::span<const MetricLabel> labels = {}) {
        std::vector<detail::Metric> added;
        detail::MetricsWriter to(added, {labels.begin(), labels.end()});
        detail::write_metrics(to, source);
        for (const detail::Metric& metric : added) refuse_twice(metric);
        metrics_.reserve(metrics_.size() + added.size());
        for (detail::Metric& metric : added) metrics_.push_back(std::move(metric));
    }
    template <detail::metrics_source Source>
    void add(const Source& source, std::initializer_list<MetricLabel> labels) {
        add(source, std::span(labels.begin(), labels.size()));
    }

    [[nodiscard]] std::string text() const {
        std::string out;
        std::vector<bool> written(metrics_.size());
        for (std::size_t i = 0; i < metrics_.size(); ++i) {
            if (written[i]) continue;
            const detail::Metric& family = metrics_[i];
            append(out, {"# HELP kvstem_", family.name, " ", family.help, "\n"});
            append(out, {"# TYPE kvstem_", family.name, " ", family.type, "\n"});
            for (std::size_t j = i; j < metrics_.size(); ++j) {
                if (metrics_[j].name != family.name) continue;
                const detail::Metric& sample = metrics_[j];
                append(out, {"kvstem_", family.name, sample.labels, " ", sample.value, "\n"});
                written[j] = true;
            }
        }
        return out;
    }

  private:
    static void append(std::string& out, std::initializer_list<std::string_view> parts) {
        for (const std::string_view part : parts) out += part;
    }
    void refuse_twice(const detail::Metric& added) const {
        for (const detail::Metric& metric : metrics_) {
            if (metric.name != added.name || metric.labels != added.labels) continue;
            std::string series;
            append(series, {"kvstem_", added.name, added.labels});
            detail::fail<InvalidArgument>("%s is added twice", series.c_str());
        }
    }

    std::vector<detail::Metric> metrics_;
};

/// The text of one source alone.
///
///     fmt::print("{}", kvstem::to_prometheus(cache, {{"model", "llama-8b"}}));
template <detail::metrics_source Source>
[[nodiscard]] std::string to_prometheus(const Source& source,
                                        std::span<const MetricLabel> labels = {}) {
    PrometheusText text;
    text.add(source, labels);
    return text.text();
}
/// The same with labels in braces, which name no type.
template <detail::metrics_source Source>
[[nodiscard]] std::string to_prometheus(const Source& source,
                                        std::initializer_list<MetricLabel> labels) {
    return to_prometheus(source, std::span(labels.begin(), labels.size()));
}

}  // namespace kvstem
