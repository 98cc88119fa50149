// SPDX-License-Identifier: MIT
// What the example `paged` prints and writes.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "json.hpp"
#include "language_model.hpp"
#include "paged_users.hpp"
#include "terminal.hpp"

namespace support::paged {

inline void print_transcripts(const Options& options, const LanguageModel& language,
                              const Outcome& outcome, std::string_view system) {
    if (options.transcripts == 0) return;
    support::print_wrapped("system", 9, system);
    for (std::size_t user = 0; user < std::min(options.users, options.transcripts); ++user) {
        fmt::print("\n");
        support::print_wrapped(fmt::format("user {}", user + 1), 9, line_of(user));
        support::print_wrapped("model", 9, language.text_of(outcome.cached.answers[user].tokens));
    }
    if (options.users > options.transcripts) {
        fmt::print("\n         … and {} more\n",
                   support::counted(options.users - options.transcripts, "user"));
    }
    fmt::print("\n");
}

inline std::string saved(double without, double with) {
    return without > 0 ? fmt::format("{:.1f} %", 100.0 * (without - with) / without) : "–";
}

inline void print_table(const Outcome& outcome) {
    support::Table table({"", "without cache", "with cache", "saved"}, 1);
    const Run& without = outcome.uncached;
    const Run& with = outcome.cached;
    const auto count = [&](const char* what, std::uint64_t a, std::uint64_t b) {
        table.row({what, fmt::to_string(a), fmt::to_string(b),
                   saved(static_cast<double>(a), static_cast<double>(b))});
    };
    const auto bytes = [&](std::size_t pages) {
        return support::bytes_text(pages * outcome.page_bytes);
    };
    table.row({"prompt tokens", fmt::to_string(outcome.prompt_tokens),
               fmt::to_string(outcome.prompt_tokens), ""});
    table.row({"… adopted", fmt::to_string(without.adopted_tokens),
               fmt::to_string(with.adopted_tokens), ""});
    count("tokens computed", without.stats.tokens_computed, with.stats.tokens_computed);
    table.rule();
    table.row({"pages in block tables, at most", fmt::to_string(without.named_pages),
               fmt::to_string(with.named_pages), ""});
    count("pages in use, at most", without.stats.peak_pages, with.stats.peak_pages);
    table.row({"… in memory", bytes(without.stats.peak_pages), bytes(with.stats.peak_pages), ""});
    table.row({"pages kept for the next user", fmt::to_string(without.kept_pages),
               fmt::to_string(with.kept_pages), ""});
    table.rule();
    count("steps", without.stats.steps, with.stats.steps);
    table.row({"preemptions", fmt::to_string(without.stats.preemptions),
               fmt::to_string(with.stats.preemptions), ""});
    table.row({"time", fmt::format("{:.1f} ms", without.milliseconds),
               fmt::format("{:.1f} ms", with.milliseconds),
               saved(without.milliseconds, with.milliseconds)});
    table.print();
}

inline void print_tree(const Outcome& outcome) {
    fmt::print("\n{}\n", support::styled(support::Style::bold, "  the tree after the cached run"));
    std::string_view text = outcome.text;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        fmt::print("  {}\n", text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    fmt::print("\n");
}

inline void print_verdict(const Outcome& outcome) {
    const std::size_t users = outcome.cached.answers.size();
    if (outcome.differing.empty()) {
        fmt::print("{}\n", support::styled(support::Style::green,
                                           fmt::format("all {} answers with the cache equal those "
                                                       "without bit for bit: tokens and logits",
                                                       users)));
    } else {
        fmt::print("{}\n",
                   support::styled(support::Style::red,
                                   fmt::format("{} of {} answers differ with the cache, the first "
                                               "is that of user {}",
                                               outcome.differing.size(), users,
                                               outcome.differing.front() + 1)));
    }
}

inline std::string json_of(const Options& options, const Outcome& outcome) {
    support::JsonWriter json;
    const auto both = [&](const char* name, const auto& cached, const auto& uncached) {
        json.begin_object(name);
        json.value("cached", cached);
        json.value("uncached", uncached);
        json.end_object();
    };
    const Run& cached = outcome.cached;
    const Run& uncached = outcome.uncached;
    json.begin_object();
    json.value("users", options.users);
    json.value("system_tokens", outcome.system_tokens);
    json.value("prompt_tokens", outcome.prompt_tokens);
    json.value("page_tokens", options.page_tokens);
    json.value("page_bytes", outcome.page_bytes);
    json.value("capacity_pages", outcome.capacity_pages);
    both("pages_peak", cached.stats.peak_pages, uncached.stats.peak_pages);
    both("pages_kept", cached.kept_pages, uncached.kept_pages);
    both("block_table_pages_peak", cached.named_pages, uncached.named_pages);
    both("tokens_adopted", cached.adopted_tokens, uncached.adopted_tokens);
    both("tokens_computed", cached.stats.tokens_computed, uncached.stats.tokens_computed);
    both("steps", cached.stats.steps, uncached.stats.steps);
    both("preemptions", cached.stats.preemptions, uncached.stats.preemptions);
    both("milliseconds", cached.milliseconds, uncached.milliseconds);
    json.value("bit_identical", outcome.differing.empty());
    json.end_object();
    return json.text();
}

}  // namespace support::paged
