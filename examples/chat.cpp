// SPDX-License-Identifier: MIT
// A conversation that is warm from its second turn on: several users talk to one model over one
// system prompt, every answer is computed with the cache and without it, and the two are compared
// bit for bit.

#include <fmt/format.h>

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

#include "kvstem/prefix_cache.hpp"
#include "kvstem/reference/decoder.hpp"
#include "kvstem/reference/kv.hpp"
#include "kvstem/reference/sampler.hpp"
#include "support/command_line.hpp"
#include "support/json.hpp"
#include "support/language_model.hpp"
#include "support/terminal.hpp"

namespace {

using kvstem::Token;
using kvstem::reference::ContiguousKv;
using kvstem::reference::Decoder;
using kvstem::reference::LogitsFor;
using kvstem::reference::Sampler;
using kvstem::reference::SamplingParams;
using support::LanguageModel;
using Cache = kvstem::PrefixCache<ContiguousKv>;
using Tokens = std::span<const Token>;

struct Options {
    support::ModelOptions model;
    std::size_t users = 3;
    std::size_t turns = 6;
    std::size_t answer_tokens = 32;
    std::size_t capacity = 64;
    std::size_t transcripts = 1;
    float temperature = 0.0f;
    std::string system;
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

/// What a user says in a turn; {} is the user's name.
constexpr std::array<std::string_view, 8> lines = {
    "The child was called {}.",   "{} saw the big red ball.", "Then it started to rain.",
    "{} was very sad.",           "But the dog came.",        "{} wanted to go home.",
    "The next day, it was warm.", "{} found a secret box.",
};

std::string line_of(std::size_t user, std::size_t turn) {
    std::string line(lines[turn % lines.size()]);
    const std::size_t at = line.find("{}");
    if (at != std::string::npos) line.replace(at, 2, names[user % names.size()]);
    return line;
}

// ── One answer ──

struct Answer {
    std::vector<Token> tokens;
    std::vector<float> logits;  // one row per sampled token
    ContiguousKv kv;            // of the prompt and of the answer, but for its last token
    std::size_t reused_tokens = 0;
    std::size_t computed_tokens = 0;  // of the prompt, as the decoder counted them
    double ttft_ms = 0;

    [[nodiscard]] std::vector<float> pending_logits(std::size_t vocab_size) const {
        return {logits.end() - static_cast<std::ptrdiff_t>(vocab_size), logits.end()};
    }
};

bool same_bits(std::span<const float> a, std::span<const float> b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

bool bit_identical(const Answer& a, const Answer& b) {
    return a.tokens == b.tokens && same_bits(a.logits, b.logits) && a.kv == b.kv;
}

/// Answers prompts, from nothing or from what a cache had.
class Answerer {
  public:
    Answerer(const LanguageModel& language, std::size_t most_tokens)
        : language_(language), decoder_(language.model()), most_tokens_(most_tokens) {}

    /// `clock` was started before the cache was asked: the lookup is part of the time to the first
    /// token.
    Answer answer(Tokens prompt, std::optional<Cache::Hit> hit, const SamplingParams& sampling,
                  const support::Stopwatch& clock) {
        Answer answer{{}, {}, ContiguousKv(decoder_.config().kv_shape())};
        const std::uint64_t before = decoder_.tokens_computed();
        std::vector<float> logits = prefill(prompt, std::move(hit), answer.kv);
        answer.computed_tokens = static_cast<std::size_t>(decoder_.tokens_computed() - before);
        answer.reused_tokens = prompt.size() - answer.computed_tokens;
        Sampler sampler(sampling);
        while (true) {
            const Token token = sampler.sample(logits);
            if (answer.logits.empty()) answer.ttft_ms = clock.milliseconds();
            answer.logits.insert(answer.logits.end(), logits.begin(), logits.end());
            if (language_.ends_text(token)) break;
            answer.tokens.push_back(token);
            if (answer.tokens.size() == most_tokens_ || language_.ends_sentence(token)) break;
            if (answer.kv.length() == decoder_.config().max_context) break;
            logits = run(Tokens(&token, 1), answer.kv);
        }
        return answer;
    }

  private:
    /// The logits that follow the prompt; `kv` then holds all of it.
    std::vector<float> prefill(Tokens prompt, std::optional<Cache::Hit> hit, ContiguousKv& kv) {
        if (hit) {
            kv = std::move(hit->kv);
            if (kv.length() == prompt.size() && hit->logits) return std::move(*hit->logits);
            // A prompt that ends inside a stored conversation comes without logits: its last token
            // is run again to get them.
            kv.truncate(std::min(kv.length(), prompt.size() - 1));
        }
        return run(prompt.subspan(kv.length()), kv);
    }

    std::vector<float> run(Tokens tokens, ContiguousKv& kv) {
        const auto logits = decoder_.forward_batch(tokens, kv.length(), kv, LogitsFor::last_token);
        return {logits.last().begin(), logits.last().end()};
    }

    const LanguageModel& language_;
    Decoder decoder_;
    std::size_t most_tokens_;
};

// ── The conversations ──

struct Turn {
    std::size_t user = 0;  // from 0
    std::size_t turn = 0;  // from 0
    std::size_t prompt_tokens = 0;
    std::size_t reused_tokens = 0;
    std::size_t computed_tokens = 0;
    double ttft_cold_ms = 0;
    double ttft_warm_ms = 0;
    bool moved = false;  // the snapshot was taken out of the cache, not copied
    bool bit_identical = false;
    std::string line;
    std::string answer;
};

struct Outcome {
    std::vector<Turn> turns;
    kvstem::PrefixCacheStats stats;
    bool bit_identical = true;
};

/// All users' conversations, a turn of each in turn.
class Conversations {
  public:
    Conversations(const Options& options, const LanguageModel& language, std::string_view system)
        : options_(options),
          language_(language),
          answerer_(language, options.answer_tokens),
          cache_({.max_entries = options.capacity}),
          texts_(options.users, language.encode(system, kvstem::reference::SequenceStart::mark)) {}

    Outcome run() {
        Outcome outcome;
        support::Progress progress("turns", options_.users * options_.turns);
        check_fits(0, texts_.front().size());
        warm_up();
        for (std::size_t turn = 0; turn < options_.turns; ++turn) {
            for (std::size_t user = 0; user < options_.users; ++user) {
                outcome.turns.push_back(take_turn(user, turn));
                outcome.bit_identical &= outcome.turns.back().bit_identical;
                progress.step();
            }
        }
        outcome.stats = cache_.stats();
        return outcome;
    }

  private:
    Turn take_turn(std::size_t user, std::size_t turn) {
        std::vector<Token>& text = texts_[user];
        const std::string line = line_of(user, turn);
        const auto said = language_.encode(line, kvstem::reference::SequenceStart::omit);
        text.insert(text.end(), said.begin(), said.end());
        check_fits(turn, text.size());
        const SamplingParams sampling{.temperature = options_.temperature,
                                      .seed = options_.model.seed + turn * options_.users + user};

        const support::Stopwatch cold_clock;
        const Answer cold = answerer_.answer(text, {}, sampling, cold_clock);

        // The first turn shares its beginning with other users, so it copies; a later one goes on
        // where this user's own snapshot ends, so it takes that out and copies nothing.
        const support::Stopwatch warm_clock;
        auto hit = turn == 0 ? cache_.acquire(text) : cache_.take(text);
        const bool moved = hit && hit->moved;
        Answer warm = answerer_.answer(text, std::move(hit), sampling, warm_clock);

        Turn done{user,
                  turn,
                  text.size(),
                  warm.reused_tokens,
                  warm.computed_tokens,
                  cold.ttft_ms,
                  warm.ttft_ms,
                  moved,
                  bit_identical(cold, warm),
                  line,
                  language_.text_of(warm.tokens)};
        text.insert(text.end(), warm.tokens.begin(), warm.tokens.end());
        store(text, std::move(warm));
        return done;
    }

    /// The last sampled token was never computed: the KV ends before it, and so does what is
    /// stored.
    void store(Tokens text, Answer answer) {
        auto logits = answer.pending_logits(language_.config().vocab_size);
        cache_.store(text.first(answer.kv.length()), std::move(answer.kv), std::move(logits));
    }

    void check_fits(std::size_t turn, std::size_t prompt_tokens) const {
        if (prompt_tokens <= language_.config().max_context) return;
        throw support::UsageError(
            fmt::format("the prompt of turn {} has {} tokens, more than the model's context of {}",
                        turn + 1, prompt_tokens, language_.config().max_context));
    }

    /// So that the first answer does not pay for fetching the weights.
    void warm_up() {
        const Tokens system = texts_.front();
        (void)answerer_.answer(system.first(std::min<std::size_t>(system.size(), 8)), {}, {}, {});
    }

    const Options& options_;
    const LanguageModel& language_;
    Answerer answerer_;
    Cache cache_;
    std::vector<std::vector<Token>> texts_;  // one per user: everything said so far
};

// ── What is printed ──

void print_transcripts(const Options& options, const Outcome& outcome, std::string_view system) {
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

std::string ratio(double cold, double warm) {
    return warm > 0 ? fmt::format("{:.1f}×", cold / warm) : "–";
}

void print_table(const Outcome& outcome) {
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

void print_stats(const kvstem::PrefixCacheStats& stats) {
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

void print_verdict(const Outcome& outcome) {
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

std::string json_of(const Outcome& outcome) {
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

int run(int argc, char** argv) {
    Options options;
    support::CommandLine line(
        "chat",
        "Several users talk to one model over one system prompt, through a PrefixCache. Each "
        "turn's "
        "prompt is the whole conversation so far; every answer is computed cold and warm, timed to "
        "its first token (TTFT), and compared bit for bit. Exit code 1 if any differs.");
    options.model.add_to(line);
    line.number("--users", "N", options.users, 1, 1000, "how many users talk");
    line.number("--turns", "N", options.turns, 1, 10'000, "how often each of them says something");
    line.number("--answer-tokens", "N", options.answer_tokens, 1, 100'000,
                "the longest answer; a sentence's end ends it too");
    line.number("--temperature", "T", options.temperature, 0, 100, "0 takes the likeliest token");
    line.number("--capacity", "N", options.capacity, 0, 1'000'000, "snapshots the cache may hold");
    line.text("--system", "TEXT", options.system, "the system prompt, in place of a story");
    line.number("--transcripts", "N", options.transcripts, 0, 1000, "conversations to print");
    line.text("--json", "FILE", options.json, "write the figures there too");
    if (!line.parse(argc, argv)) return 0;

    const std::string system = options.system.empty() ? std::string(story) : options.system;
    const LanguageModel language(options.model);
    std::optional<support::OutputFile> json_file;
    if (!options.json.empty()) json_file.emplace(options.json);

    const Outcome outcome = Conversations(options, language, system).run();
    fmt::print("{}\n\n", support::styled(support::Style::bold,
                                         fmt::format("{}: {}, {} each", language.description(),
                                                     support::counted(options.users, "user"),
                                                     support::counted(options.turns, "turn"))));
    print_transcripts(options, outcome, system);
    fmt::print("{}\n\n", support::styled(support::Style::dim,
                                         "  tokens of each prompt; TTFT: time to the first token, "
                                         "lookup included"));
    print_table(outcome);
    print_stats(outcome.stats);
    print_verdict(outcome);
    if (json_file) json_file->write(json_of(outcome));
    return outcome.bit_identical ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    return support::run_example("chat", [&] { return run(argc, argv); });
}
