// SPDX-License-Identifier: MIT
// The users of the example `paged`: all at once on one system prompt, without a cache and with one.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "command_line.hpp"
#include "kvstem/picture.hpp"
#include "kvstem/radix_cache.hpp"
#include "kvstem/reference/batcher.hpp"
#include "kvstem/reference/decoder.hpp"
#include "kvstem/reference/job.hpp"
#include "kvstem/reference/kv.hpp"
#include "kvstem/reference/paged_kv.hpp"
#include "language_model.hpp"
#include "terminal.hpp"

namespace support::paged {

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

inline constexpr std::string_view story =
    "Once upon a time, in a small house near a big forest, there lived a kind old woman with many "
    "toys. Every day the children came to her garden to play and to hear a story. She had a red "
    "ball, a blue kite and a little brown dog who liked to run. One sunny day, the old woman "
    "opened the door and saw a child who was new.";

inline constexpr std::array<std::string_view, 8> names = {"Lily", "Tom",  "Mia", "Ben",
                                                          "Sara", "Jack", "Amy", "Max"};

inline constexpr std::array<std::string_view, 8> lines = {
    "{} saw the big red ball.", "{} was very sad.",     "{} wanted to go home.",
    "{} found a secret box.",   "{} had a new friend.", "{} played with the dog.",
    "{} could not find it.",    "{} asked for help.",
};

/// What a user says. Both lists are walked at different speeds, so that 64 users say 64 things.
inline std::string line_of(std::size_t user) {
    std::string line(lines[(user + user / names.size()) % lines.size()]);
    return line.replace(line.find("{}"), 2, names[user % names.size()]);
}

inline std::vector<Job> jobs_of(const Options& options, const LanguageModel& language,
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

inline Run run_users(const Options& options, const std::vector<Job>& jobs, Decoder& decoder,
                     Pages& pages, Sharing sharing) {
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

inline bool bit_identical(const JobResult& a, const JobResult& b) {
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
inline std::size_t pages_without_sharing(const Options& options, const std::vector<Job>& jobs) {
    std::size_t pages = 0;
    for (const Job& job : jobs) {
        pages += (job.prompt.size() + options.answer_tokens + options.page_tokens - 1) /
                 options.page_tokens;
    }
    return pages;
}

inline Outcome compare(const Options& options, const LanguageModel& language,
                       std::string_view system) {
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

}  // namespace support::paged
