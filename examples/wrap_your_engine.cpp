// SPDX-License-Identifier: MIT
// An engine that knows nothing of this library, and what it needs so that prompts which begin alike
// are computed only where they differ: its rows can be read and written.

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <span>
#include <vector>

#include "kvstem/prefix_cached_engine.hpp"

// A tiny language model: the row of a position blends its token into the row before, and what comes
// next is what resembles the last row. This code is not ours.
class TinyEngine {
  public:
    std::size_t tokens_run = 0;

    std::vector<float> forward(std::span<const int> tokens, std::size_t start) {
        rows_.resize(start + tokens.size());  // whatever followed `start` is over
        for (std::size_t i = 0; i < tokens.size(); ++i, ++tokens_run) {
            const std::size_t p = start + i;
            for (std::size_t d = 0; d < dim; ++d) {
                const float before = p == 0 ? 0.0f : rows_[p - 1][d];
                rows_[p][d] = 0.6f * before + embedding(tokens[i], d);
            }
        }
        std::vector<float> logits(vocab_size(), 0.0f);
        for (std::size_t v = 0; v < logits.size(); ++v) {
            for (std::size_t d = 0; d < dim; ++d) {
                logits[v] += rows_.back()[d] * embedding(static_cast<int>(v) + 3, d);
            }
        }
        return logits;
    }

    // [readme:engine]
    // What it was given so that it can be wrapped: five functions that copy or tell a size.
    std::size_t vocab_size() const { return 128; }
    std::size_t max_context() const { return 4096; }
    std::size_t row_bytes() const { return sizeof(Row); }
    std::size_t read_rows(std::size_t begin, std::size_t end, std::span<std::byte> out) const {
        if (out.size() == (end - begin) * sizeof(Row)) {
            std::memcpy(out.data(), rows_.data() + begin, out.size());
        }
        return (end - begin) * sizeof(Row);  // a cache that expected another size refuses this
    }
    void write_rows(std::size_t begin, std::size_t end, std::span<const std::byte> in) {
        rows_.resize(end);
        std::memcpy(rows_.data() + begin, in.data(), in.size());
    }
    // [/readme:engine]

  private:
    static constexpr std::size_t dim = 16;
    using Row = std::array<float, dim>;
    static float embedding(int token, std::size_t d) {
        return std::sin(static_cast<float>(token + 1) * static_cast<float>(2 * d + 1));
    }
    std::vector<Row> rows_;  // the KV: one row for each position
};
static_assert(kvstem::row_engine<TinyEngine>);  // or the compiler says what is missing
using Cached = kvstem::PrefixCachedEngine<TinyEngine>;
const kvstem::GenerateParams asked{.max_new_tokens = 20, .stop_tokens = {0}};

std::vector<int> ask(Cached& cached, const std::vector<int>& prompt) {
    const auto answer = cached.generate(prompt, asked);
    std::printf("prompt of %zu tokens: %zu reused; %zu computed, answer included\n", prompt.size(),
                answer.reused_tokens, answer.computed_tokens);
    return answer.tokens;
}

int main() {
    // [readme:wrap]
    TinyEngine engine;
    kvstem::PrefixCachedEngine cached(engine, {.block_tokens = 16, .max_bytes = 64 << 20});
    // [/readme:wrap]
    bool equal = true;
    std::size_t without_cache = 0;
    for (const int question : {5, 7, 5}) {  // the last prompt is the first again
        std::vector<int> prompt(200);       // all begin alike, as with one system prompt
        for (std::size_t i = 0; i < 200; ++i) prompt[i] = static_cast<int>(i * 31 % 128);
        prompt.insert(prompt.end(), {question, 1, question, 2});
        TinyEngine plain;
        Cached nothing(plain);
        equal = ask(cached, prompt) == nothing.generate(prompt, asked).tokens && equal;
        without_cache += plain.tokens_run;
    }
    const auto stats = cached.stats();
    std::printf("%.0f %% of all prompt tokens reused; %zu blocks of %zu bytes in all\n",
                stats.hit_rate() * 100.0, stats.blocks, stats.bytes);
    std::printf("the engine itself counted %zu tokens, without a cache %zu; the answers are %s\n",
                engine.tokens_run, without_cache, equal ? "the same" : "NOT the same");
    return equal && engine.tokens_run < without_cache ? 0 : 1;
}
