// SPDX-License-Identifier: MIT
// The conversations of the example `chat`: every answer is computed cold and warm, and compared.
#pragma once

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

#include "command_line.hpp"
#include "kvstem/prefix_cache.hpp"
#include "kvstem/reference/decoder.hpp"
#include "kvstem/reference/kv.hpp"
#include "kvstem/reference/sampler.hpp"
#include "language_model.hpp"
#include "terminal.hpp"

namespace support::chat {

using kvstem::Token;
using kvstem::reference::ContiguousKv;
using kvstem::reference::Decoder;
using kvstem::reference::LogitsFor;
using kvstem::reference::Sampler;
using kvstem::reference::SamplingParams;
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

inline constexpr std::string_view story =
    "Once upon a time, in a small house near a big forest, there lived a kind old woman with many "
    "toys. Every day the children came to her garden to play and to hear a story. She had a red "
    "ball, a blue kite and a little brown dog who liked to run. One sunny day, the old woman "
    "opened the door and saw a child who was new.";

inline constexpr std::array<std::string_view, 8> names = {"Lily", "Tom",  "Mia", "Ben",
                                                          "Sara", "Jack", "Amy", "Max"};

/// What a user says in a turn; {} is the user's name.
inline constexpr std::array<std::string_view, 8> lines = {
    "The child was called {}.",   "{} saw the big red ball.", "Then it started to rain.",
    "{} was very sad.",           "But the dog came.",        "{} wanted to go home.",
    "The next day, it was warm.", "{} found a secret box.",
};

inline std::string line_of(std::size_t user, std::size_t turn) {
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

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

inline bool bit_identical(const Answer& a, const Answer& b) {
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

}  // namespace support::chat
