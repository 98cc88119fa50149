// SPDX-License-Identifier: MIT
// What the example `chat` prints and writes.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "chat_conversations.hpp"
#include "json.hpp"
#include "kvstem/prefix_cache.hpp"
#include "terminal.hpp"

namespace support::chat {

inline void print_transcripts(const Options& options, const Outcome& outcome,
                              std::string_view system) {
    if (options.transcripts == 0) return;
    support::print_wrapped("system", 9, system);
    for (std::size_t user = 0; user < std::min(options.users, options.transcripts); ++user) {
        fmt::print("\n");
        for (const Turn& turn : outcome.turns) {
            if (turn.user != user) continue;
            support::print_wrapped(fmt::format("user {}", user + 1), 9, turn.line);
            support::print_wrapped("model", 9, turn.answer);
        }
    }
    fmt::print("\n");
}

inline std::string ratio(double cold, double warm) {
    return warm > 0 ? fmt::format("{:.1f}×", cold / warm) : "–";
}

inline void print_table(const Outcome& outcome) {
    support::Table table({"turn", "user", "prompt", "reused", "computed", "cold TTFT", "warm TTFT",
                          "speed-up", "snapshot", "equal"});
    Turn sum;
    for (const Turn& turn : outcome.turns) {
        table.row({fmt::to_string(turn.turn + 1), fmt::to_string(turn.user + 1),
                   fmt::to_string(turn.prompt_tokens), fmt::to_string(turn.reused_tokens),
                   fmt::to_string(turn.computed_tokens),
                   fmt::format("{:.2f} ms", turn.ttft_cold_ms),
                   fmt::format("{:.2f} ms", turn.ttft_warm_ms),
                   ratio(turn.ttft_cold_ms, turn.ttft_warm_ms),
                   turn.moved                ? "moved"
                   : turn.reused_tokens != 0 ? "copied"
                                             : "none",
                   turn.bit_identical ? "yes" : "NO"});
        sum.prompt_tokens += turn.prompt_tokens;
        sum.reused_tokens += turn.reused_tokens;
        sum.computed_tokens += turn.computed_tokens;
        sum.ttft_cold_ms += turn.ttft_cold_ms;
        sum.ttft_warm_ms += turn.ttft_warm_ms;
    }
    table.rule();
    table.row({"all", "", fmt::to_string(sum.prompt_tokens), fmt::to_string(sum.reused_tokens),
               fmt::to_string(sum.computed_tokens), fmt::format("{:.2f} ms", sum.ttft_cold_ms),
               fmt::format("{:.2f} ms", sum.ttft_warm_ms),
               ratio(sum.ttft_cold_ms, sum.ttft_warm_ms), "", ""});
    table.print();
}

inline void print_stats(const kvstem::PrefixCacheStats& stats) {
    const double share = stats.queried_tokens == 0 ? 0.0
                                                   : 100.0 * static_cast<double>(stats.hit_tokens) /
                                                         static_cast<double>(stats.queried_tokens);
    fmt::print("\n  lookups  {}: {} moved a snapshot out, {} copied one, {} missed\n",
               stats.hits + stats.misses, stats.taken, stats.hits - stats.taken, stats.misses);
    fmt::print("  tokens   {}: {} hit, {} missed, {:.1f} % need no computing\n",
               stats.queried_tokens, stats.hit_tokens, stats.missed_tokens, share);
    fmt::print("  stores   {}: {} new, {} replaced an entry, {} refused; {} evicted\n",
               stats.stored + stats.refused, stats.stored - stats.replaced, stats.replaced,
               stats.refused, stats.evictions);
    fmt::print("  holds    {} of {}, and {} to find them by\n\n",
               support::counted(stats.entries, "snapshot"), support::bytes_text(stats.bytes),
               support::bytes_text(stats.index_bytes));
}

inline void print_verdict(const Outcome& outcome) {
    const auto differing = std::count_if(outcome.turns.begin(), outcome.turns.end(),
                                         [](const Turn& turn) { return !turn.bit_identical; });
    if (outcome.bit_identical) {
        fmt::print("{}\n",
                   support::styled(support::Style::green,
                                   fmt::format("all {} warm answers equal the cold ones bit "
                                               "for bit: tokens, logits and KV",
                                               outcome.turns.size())));
    } else {
        fmt::print("{}\n", support::styled(support::Style::red,
                                           fmt::format("{} of {} warm answers differ from the cold "
                                                       "ones",
                                                       differing, outcome.turns.size())));
    }
}

inline std::string json_of(const Outcome& outcome) {
    support::JsonWriter json;
    json.begin_object();
    json.begin_array("turns");
    for (const Turn& turn : outcome.turns) {
        json.begin_object();
        json.value("user", turn.user + 1);
        json.value("turn", turn.turn + 1);
        json.value("prompt_tokens", turn.prompt_tokens);
        json.value("reused_tokens", turn.reused_tokens);
        json.value("computed_tokens", turn.computed_tokens);
        json.value("ttft_cold_ms", turn.ttft_cold_ms);
        json.value("ttft_warm_ms", turn.ttft_warm_ms);
        json.end_object();
    }
    json.end_array();
    json.value("bit_identical", outcome.bit_identical);
    const kvstem::PrefixCacheStats& stats = outcome.stats;
    json.begin_object("stats");
    json.value("hits", stats.hits);
    json.value("misses", stats.misses);
    json.value("queried_tokens", stats.queried_tokens);
    json.value("hit_tokens", stats.hit_tokens);
    json.value("missed_tokens", stats.missed_tokens);
    json.value("taken", stats.taken);
    json.value("stored", stats.stored);
    json.value("replaced", stats.replaced);
    json.value("refused", stats.refused);
    json.value("evictions", stats.evictions);
    json.value("entries", stats.entries);
    json.value("bytes", stats.bytes);
    json.value("index_bytes", stats.index_bytes);
    json.value("namespaces", stats.namespaces);
    json.end_object();
    json.end_object();
    return json.text();
}

}  // namespace support::chat
