// SPDX-License-Identifier: MIT
// Many users on one system prompt, batched over paged KV: with the cache, the pages of that prompt
// are computed once and held once. Both runs are shown side by side, and every answer is compared
// bit for bit.

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvstem/picture.hpp"
#include "kvstem/radix_cache.hpp"
#include "kvstem/reference/batcher.hpp"
#include "kvstem/reference/decoder.hpp"
#include "kvstem/reference/job.hpp"
#include "kvstem/reference/kv.hpp"
#include "kvstem/reference/paged_kv.hpp"
#include "support/command_line.hpp"
#include "support/json.hpp"
#include "support/language_model.hpp"
#include "support/terminal.hpp"

namespace {

using kvstem::Token;
using kvstem::reference::Batcher;
using kvstem::reference::Decoder;
using kvstem::reference::Job;
using kvstem::reference::JobId;
using kvstem::reference::JobResult;
using kvstem::reference::JobStatus;
using kvstem::reference::PagedKvStore;
using kvstem::reference::SequenceStart;
using kvstem::reference::Sharing;
using support::LanguageModel;
using Cache = kvstem::RadixCache<>;

struct Options {
    support::ModelOptions model;
    std::size_t users = 32;
    std::size_t answer_tokens = 24;
    std::size_t page_tokens = 16;
    std::size_t chunk_tokens = 32;
    std::size_t pages = 0;
    std::size_t transcripts = 3;
    float temperature = 0.0f;
    std::string system;
    std::string dot;
    std::string json;
};

// ── What is said ──

constexpr std::string_view story =
    "Once upon a time, in a small house near a big forest, there lived a kind old woman with many "
    "toys. Every day the children came to her garden to play and to hear a story. She had a red "
    "ball, a blue kite and a little brown dog who liked to run. One sunny day, the old woman "
    "opened the door and saw a child who was new.";

constexpr std::array<std::string_view, 8> names = {"Lily", "Tom",  "Mia", "Ben",
                                                   "Sara", "Jack", "Amy", "Max"};

constexpr std::array<std::string_view, 8> lines = {
    "{} saw the big red ball.", "{} was very sad.",     "{} wanted to go home.",
    "{} found a secret box.",   "{} had a new friend.", "{} played with the dog.",
    "{} could not find it.",    "{} asked for help.",
};

/// What a user says. Both lists are walked at different speeds, so that 64 users say 64 things.
std::string line_of(std::size_t user) {
    std::string line(lines[(user + user / names.size()) % lines.size()]);
    return line.replace(line.find("{}"), 2, names[user % names.size()]);
}

std::vector<Job> jobs_of(const Options& options, const LanguageModel& language,
                         const std::vector<Token>& system) {
    std::vector<Token> stops;
    for (std::size_t i = 0; i < language.config().vocab_size; ++i) {
        const auto token = static_cast<Token>(i);
        if (language.ends_text(token) || language.ends_sentence(token)) stops.push_back(token);
    }
    std::vector<Job> jobs;
    for (std::size_t user = 0; user < options.users; ++user) {
        Job job;
        job.prompt = system;
        const auto said = language.encode(line_of(user), SequenceStart::omit);
        job.prompt.insert(job.prompt.end(), said.begin(), said.end());
        if (job.prompt.size() > language.config().max_context) {
            throw support::UsageError(
                fmt::format("the prompt of user {} has {} tokens, more than the model's context of "
                            "{}",
                            user + 1, job.prompt.size(), language.config().max_context));
        }
        job.sampling = {.temperature = options.temperature, .seed = options.model.seed + user};
        job.stop_tokens = stops;
        job.max_new_tokens = options.answer_tokens;
        jobs.push_back(std::move(job));
    }
    return jobs;
}

// ── One run of all users ──

/// The cache and the memory of its page groups.
struct Pages {
    Pages(const LanguageModel& language, std::size_t pages, std::size_t page_tokens)
        : cache({.page_tokens = page_tokens}, kvstem::PagePool(pages)),
          store(language.config().kv_shape(), pages, page_tokens) {}

    Cache cache;
    PagedKvStore store;
};

struct Run {
    std::vector<JobResult> answers;  // by user
    kvstem::reference::BatcherStats stats;
    std::size_t adopted_tokens = 0;
    std::size_t named_pages = 0;  // the most entries that all block tables together had
    std::size_t kept_pages = 0;   // in the tree, at the end
    double milliseconds = 0;
};

Run run_users(const Options& options, const std::vector<Job>& jobs, Decoder& decoder, Pages& pages,
              Sharing sharing) {
    Batcher<> batcher(pages.cache, pages.store, decoder,
                      {.prefill_chunk_tokens = options.chunk_tokens,
                       .max_running = options.users,
                       .sharing = sharing});
    Run run;
    const support::Stopwatch clock;
    std::vector<JobId> ids;
    for (const Job& job : jobs) ids.push_back(batcher.submit(job));
    while (batcher.step()) {
        std::size_t named = 0;
        for (const JobId id : ids) {
            const auto* const lease = batcher.lease(id);
            if (lease != nullptr) named += lease->block_table().size();
        }
        run.named_pages = std::max(run.named_pages, named);
    }
    run.milliseconds = clock.milliseconds();
    for (std::size_t user = 0; user < ids.size(); ++user) {
        const JobResult& answer = batcher.result(ids[user]);
        if (answer.status == JobStatus::never_fits) {
            throw support::UsageError(fmt::format(
                "--pages {} is too small: user {} alone needs more", options.pages, user + 1));
        }
        run.adopted_tokens += answer.adopted_tokens;
        run.answers.push_back(answer);
    }
    run.stats = batcher.stats();
    run.kept_pages = pages.cache.cached_pages();
    return run;
}

bool bit_identical(const JobResult& a, const JobResult& b) {
    return a.status == b.status && a.tokens == b.tokens && a.logits == b.logits &&
           a.last_logits.size() == b.last_logits.size() &&
           std::memcmp(a.last_logits.data(), b.last_logits.data(),
                       a.last_logits.size() * sizeof(float)) == 0;
}

struct Outcome {
    std::size_t system_tokens = 0;
    std::size_t prompt_tokens = 0;  // of all users
    std::size_t capacity_pages = 0;
    std::size_t page_bytes = 0;
    Run uncached;
    Run cached;
    std::vector<std::size_t> differing;  // users
    std::string text;                    // the tree, after the cached run
    std::string dot;
};

/// As many pages as all users at once need if they share none.
std::size_t pages_without_sharing(const Options& options, const std::vector<Job>& jobs) {
    std::size_t pages = 0;
    for (const Job& job : jobs) {
        pages += (job.prompt.size() + options.answer_tokens + options.page_tokens - 1) /
                 options.page_tokens;
    }
    return pages;
}

Outcome compare(const Options& options, const LanguageModel& language, std::string_view system) {
    Outcome outcome;
    const auto system_tokens = language.encode(system, SequenceStart::mark);
    const std::vector<Job> jobs = jobs_of(options, language, system_tokens);
    outcome.system_tokens = system_tokens.size();
    for (const Job& job : jobs) outcome.prompt_tokens += job.prompt.size();
    outcome.capacity_pages =
        options.pages != 0 ? options.pages : pages_without_sharing(options, jobs);
    Decoder decoder(language.model());
    {
        // So that the first run does not pay for fetching the weights.
        kvstem::reference::ContiguousKv kv(language.config().kv_shape());
        const std::size_t few = std::min<std::size_t>(8, jobs.front().prompt.size());
        (void)decoder.forward_batch(std::span(jobs.front().prompt).first(few), 0, kv);
    }
    {
        Pages pages(language, outcome.capacity_pages, options.page_tokens);
        outcome.page_bytes = pages.store.bytes() / outcome.capacity_pages;
        outcome.uncached = run_users(options, jobs, decoder, pages, Sharing::off);
    }
    Pages pages(language, outcome.capacity_pages, options.page_tokens);
    outcome.cached = run_users(options, jobs, decoder, pages, Sharing::prefill_chunks);
    for (std::size_t user = 0; user < options.users; ++user) {
        if (!bit_identical(outcome.uncached.answers[user], outcome.cached.answers[user])) {
            outcome.differing.push_back(user);
        }
    }
    const auto piece = [&](Token token) {
        return language.has_tokenizer() ? language.text_of({&token, 1}) : fmt::to_string(token);
    };
    outcome.text =
        kvstem::to_text(pages.cache, {.most_nodes = 7, .most_tokens = 6, .most_pages = 6}, piece);
    outcome.dot = kvstem::to_dot(pages.cache, {}, piece);
    return outcome;
}

// ── What is printed ──

void print_transcripts(const Options& options, const LanguageModel& language,
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

std::string saved(double without, double with) {
    return without > 0 ? fmt::format("{:.1f} %", 100.0 * (without - with) / without) : "–";
}

void print_table(const Outcome& outcome) {
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

void print_tree(const Outcome& outcome) {
    fmt::print("\n{}\n", support::styled(support::Style::bold, "  the tree after the cached run"));
    std::string_view text = outcome.text;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        fmt::print("  {}\n", text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    fmt::print("\n");
}

void print_verdict(const Outcome& outcome) {
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

std::string json_of(const Options& options, const Outcome& outcome) {
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

int run(int argc, char** argv) {
    Options options;
    support::CommandLine line(
        "paged",
        "Many users on one system prompt, answered together by a continuous batcher over paged KV, "
        "without a cache and with a RadixCache. Compares the pages they hold, the tokens that are "
        "computed, the time, and every answer bit for bit. Exit code 1 if any answer differs.");
    options.model.add_to(line);
    line.number("--users", "N", options.users, 1, 1000, "how many users there are, all at once");
    line.number("--answer-tokens", "N", options.answer_tokens, 1, 100'000,
                "the longest answer; a sentence's end ends it too");
    line.number("--temperature", "T", options.temperature, 0, 100, "0 takes the likeliest token");
    line.number("--page-tokens", "P", options.page_tokens, 1, 4096, "positions of a page");
    line.number("--chunk-tokens", "N", options.chunk_tokens, 1, 1'000'000,
                "of a prompt that are computed in one step");
    line.number("--pages", "N", options.pages, 0, 10'000'000,
                "the pool; 0: as many as all users need without sharing");
    line.text("--system", "TEXT", options.system, "the system prompt, in place of a story");
    line.number("--transcripts", "N", options.transcripts, 0, 1000, "answers to print");
    line.text("--dot", "FILE", options.dot, "write a picture of the tree there, for Graphviz");
    line.text("--json", "FILE", options.json, "write the figures there too");
    if (!line.parse(argc, argv)) return 0;

    const std::string system = options.system.empty() ? std::string(story) : options.system;
    const LanguageModel language(options.model);
    std::optional<support::OutputFile> dot_file;
    std::optional<support::OutputFile> json_file;
    if (!options.dot.empty()) dot_file.emplace(options.dot);
    if (!options.json.empty()) json_file.emplace(options.json);

    const Outcome outcome = compare(options, language, system);
    fmt::print("{}\n", support::styled(support::Style::bold, language.description()));
    fmt::print("{}\n\n",
               support::styled(support::Style::bold,
                               fmt::format("{} on one system prompt of {}, {} of {}",
                                           support::counted(options.users, "user"),
                                           support::counted(outcome.system_tokens, "token"),
                                           support::counted(outcome.capacity_pages, "page"),
                                           support::counted(options.page_tokens, "position"))));
    print_transcripts(options, language, outcome, system);
    print_table(outcome);
    print_tree(outcome);
    print_verdict(outcome);
    if (dot_file) dot_file->write(outcome.dot);
    if (json_file) json_file->write(json_of(options, outcome));
    return outcome.differing.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    return support::run_example("paged", [&] { return run(argc, argv); });
}
