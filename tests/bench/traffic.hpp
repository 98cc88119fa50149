// SPDX-License-Identifier: MIT
// The traffic the benchmark replays: everything from a fixed seed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "kvstem/token.hpp"

namespace bench {

using Tokens = std::vector<kvstem::Token>;
using View = std::span<const kvstem::Token>;

/// A small generator whose numbers are the same everywhere (PCG, XSH-RR variant; O'Neill 2014).
class Random {
  public:
    explicit Random(std::uint64_t seed) : state_(seed * 2 + 1) { next(); }
    std::uint32_t next() {
        const std::uint64_t old = state_;
        state_ = old * 6364136223846793005ull + 1442695040888963407ull;
        const auto word = static_cast<std::uint32_t>(((old >> 18) ^ old) >> 27);
        const auto turn = static_cast<std::uint32_t>(old >> 59);
        return (word >> turn) | (word << ((32 - turn) & 31));
    }
    std::uint32_t below(std::size_t bound) {
        return static_cast<std::uint32_t>(std::uint64_t{next()} * bound >> 32);
    }
    double unit() { return next() / 4294967296.0; }
    void fill(std::span<kvstem::Token> out) {
        for (auto& token : out) token = static_cast<kvstem::Token>(below(128'000));
    }
    Tokens tokens(std::size_t n) {
        Tokens out(n);
        fill(out);
        return out;
    }

  private:
    std::uint64_t state_;
};

/// Draws ranks 0 … n − 1 with probability proportional to 1 / (rank + 1).
class Zipf {
  public:
    explicit Zipf(std::size_t n) : cumulative_(n) {
        double sum = 0;
        for (std::size_t i = 0; i < n; ++i)
            cumulative_[i] = sum += 1.0 / static_cast<double>(i + 1);
    }
    std::size_t draw(Random& random) const {
        const double at = random.unit() * cumulative_.back();
        return static_cast<std::size_t>(
            std::lower_bound(cumulative_.begin(), cumulative_.end(), at) - cumulative_.begin());
    }

  private:
    std::vector<double> cumulative_;
};

/// The time to compare this many tokens is the floor of everything that has to find them equal.
inline int compare(View a, View b) {
    return std::memcmp(a.data(), b.data(), a.size_bytes());
}

/// Conversations over shared system prompts. Each is one run of tokens of which a request is a
/// prefix: the system prompt and the turns so far. Conversations are asked for by a Zipf law; each
/// goes on by a turn every time, and starts again after its last.
struct Chat {
    static constexpr std::size_t n_systems = 64;
    static constexpr std::size_t system_tokens = 2000;

    struct Conversation {
        Tokens tokens;
        std::uint32_t system = 0;
        std::vector<std::uint32_t> ends{};  // length after each turn
    };
    struct Request {
        std::uint32_t conversation;
        std::uint32_t length;
    };

    std::vector<Conversation> conversations;
    std::vector<Request> requests;

    Chat(std::size_t n_conversations, std::size_t n_requests) {
        Random random(42);
        std::vector<Tokens> systems;
        for (std::size_t i = 0; i < n_systems; ++i) systems.push_back(random.tokens(system_tokens));
        conversations.resize(n_conversations);
        for (auto& conversation : conversations) {
            conversation.system = random.below(n_systems);
            const std::size_t turns = 1 + random.below(8);
            std::size_t length = system_tokens;
            for (std::size_t turn = 0; turn < turns; ++turn) {
                length += 50 + random.below(351);
                conversation.ends.push_back(static_cast<std::uint32_t>(length));
            }
            conversation.tokens.reserve(length);
            conversation.tokens = systems[conversation.system];
            conversation.tokens.resize(length);
            random.fill(std::span(conversation.tokens).subspan(system_tokens));
        }
        const Zipf zipf(n_conversations);
        std::vector<std::uint8_t> turn(n_conversations);
        for (std::size_t i = 0; i < n_requests; ++i) {
            const std::size_t c = zipf.draw(random);
            requests.push_back({static_cast<std::uint32_t>(c), conversations[c].ends[turn[c]]});
            turn[c] = static_cast<std::uint8_t>((turn[c] + 1u) % conversations[c].ends.size());
        }
    }
    [[nodiscard]] View prompt(const Request& request) const {
        return View(conversations[request.conversation].tokens).first(request.length);
    }
    [[nodiscard]] std::size_t prompt_tokens() const {
        std::size_t sum = 0;
        for (const Request& request : requests) sum += request.length;
        return sum;
    }
};

/// A second copy of a chat's tokens, to compare the prompts with. As in a tree, every system prompt
/// is there once: a copy for each conversation would make the floor slower than what any cache of
/// shared prefixes has to read.
class ChatCopy {
  public:
    explicit ChatCopy(const Chat& chat) : chat_(chat), systems_(Chat::n_systems) {
        turns_.reserve(chat.conversations.size());
        for (const auto& conversation : chat.conversations) {
            const View tokens(conversation.tokens);
            const View system = tokens.first(Chat::system_tokens);
            systems_[conversation.system].assign(system.begin(), system.end());
            const View turns = tokens.subspan(Chat::system_tokens);
            turns_.emplace_back(turns.begin(), turns.end());
        }
    }
    [[nodiscard]] int compare_with(const Chat::Request& request) const {
        const View prompt = chat_.prompt(request);
        const auto& conversation = chat_.conversations[request.conversation];
        return compare(prompt.first(Chat::system_tokens), systems_[conversation.system]) |
               compare(prompt.subspan(Chat::system_tokens), turns_[request.conversation]);
    }
    [[nodiscard]] kvstem::Token first_token(const Chat::Conversation& conversation) const {
        return systems_[conversation.system][0];
    }

  private:
    const Chat& chat_;
    std::vector<Tokens> systems_;
    std::vector<Tokens> turns_;
};

/// Many short sequences of 64 tokens, each on one of some shared beginnings of 32.
struct Wide {
    static constexpr std::size_t tokens_each = 64;
    static constexpr std::size_t shared_tokens = 32;

    std::size_t size;
    std::size_t n_beginnings;
    Tokens tokens;

    Wide(std::size_t n, std::size_t n_shared)
        : size(n), n_beginnings(n_shared), tokens(n * tokens_each) {
        Random random(9);
        const Tokens beginnings = random.tokens(n_shared * shared_tokens);
        for (std::size_t i = 0; i < n; ++i) {
            const auto sequence = std::span(tokens).subspan(i * tokens_each, tokens_each);
            const auto beginning =
                View(beginnings).subspan(random.below(n_shared) * shared_tokens, shared_tokens);
            std::copy(beginning.begin(), beginning.end(), sequence.begin());
            random.fill(sequence.subspan(shared_tokens));
            // So that even with pages of one token a sequence leaves all others exactly here.
            sequence[shared_tokens] = static_cast<kvstem::Token>(128'000 + i);
        }
    }
    [[nodiscard]] View operator[](std::size_t i) const {
        return View(tokens).subspan(i * tokens_each, tokens_each);
    }
    /// Pages of P tokens that one sequence has to itself.
    [[nodiscard]] static std::size_t own_pages(std::size_t page_tokens) {
        return tokens_each / page_tokens - shared_tokens / page_tokens;
    }
    /// Pages that the whole tree takes, and some for a running request.
    [[nodiscard]] std::size_t pages(std::size_t page_tokens) const {
        return n_beginnings * (shared_tokens / page_tokens) + size * own_pages(page_tokens) +
               tokens_each;
    }
};

}  // namespace bench
