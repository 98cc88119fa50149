// SPDX-License-Identifier: MIT
// Engines of each form whose KV rows are hashes of all tokens before them and whose logits are a
// hash of all rows, so that one wrong row changes every answer; they count, and fail on demand.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

#include "kvstem/engine_concepts.hpp"
#include "kvstem/reference/sampler.hpp"
#include "kvstem/token.hpp"

namespace kvstem_test {

using Tokens = std::vector<kvstem::Token>;
using Row = std::uint64_t;

struct EngineFailed : std::exception {
    [[nodiscard]] const char* what() const noexcept override { return "the engine failed"; }
};

inline Row stir(Row x) noexcept {
    x = (x ^ (x >> 31)) * 0x9E37'79B9'7F4A'7C15u;
    return x ^ (x >> 29);
}
inline Row next_row(Row before, kvstem::Token token) noexcept {
    return stir(before * 31 + static_cast<Row>(token) + 1);
}

/// Sizes, counters and faults. Members are public: tests set and read them.
struct ToyEngine {
    std::size_t vocabulary = 40;
    std::size_t context = 400;
    std::uint64_t computed = 0;      // tokens
    std::uint64_t steps = 0;         // places where it could have failed
    std::uint64_t fail_at_step = 0;  // 0: never
    std::size_t logits_off = 0;      // how many too few it returns
    bool logits_are_nan = false;

    [[nodiscard]] std::size_t vocab_size() const noexcept { return vocabulary; }
    [[nodiscard]] std::size_t max_context() const noexcept { return context; }

  protected:
    void step() {
        if (++steps == fail_at_step) throw EngineFailed();
    }
    /// Computes rows one by one, and may fail between any two.
    template <class RowAt>
    std::vector<float> run(std::span<const kvstem::Token> tokens, std::size_t start,
                           RowAt&& row_at) {
        if (tokens.empty()) throw std::logic_error("no tokens to compute");
        step();
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            const std::size_t position = start + i;
            const Row before = position == 0 ? 0 : row_at(position - 1);
            row_at(position) = next_row(before, tokens[i]);
            step();
        }
        computed += tokens.size();
        Row all = 0;
        for (std::size_t p = 0; p < start + tokens.size(); ++p) all = stir(all + row_at(p));
        std::vector<float> logits(vocabulary - logits_off);
        for (float& logit : logits) {
            all = stir(all + 1);
            logit = logits_are_nan ? std::numeric_limits<float>::quiet_NaN()
                                   : static_cast<float>(all >> 44u) / 131072.0f;
        }
        return logits;
    }
};

/// Reads its rows through a block table.
struct ToyPagedEngine : ToyEngine {
    explicit ToyPagedEngine(std::size_t capacity = 64, std::size_t tokens = 4)
        : pages(capacity), page_size(tokens), rows(capacity * tokens) {}

    std::size_t pages;
    std::size_t page_size;
    std::vector<Row> rows;
    std::uint64_t rows_copied = 0;

    [[nodiscard]] std::size_t page_tokens() const noexcept { return page_size; }
    [[nodiscard]] std::size_t capacity_pages() const noexcept { return pages; }
    [[nodiscard]] std::size_t page_bytes() const noexcept { return page_size * sizeof(Row); }

    std::vector<float> forward(std::span<const kvstem::Token> tokens, std::size_t start,
                               std::span<const kvstem::PageId> table) {
        return run(tokens, start, [&](std::size_t position) -> Row& {
            if (position / page_size >= table.size()) throw std::logic_error("no page");
            return rows.at(index_of(table[position / page_size]) * page_size +
                           position % page_size);
        });
    }
};

/// … and copies the beginning of a page.
struct ToyCopyingPagedEngine : ToyPagedEngine {
    using ToyPagedEngine::ToyPagedEngine;
    void copy_rows(kvstem::PageId from, kvstem::PageId to, std::size_t n) {
        step();
        std::copy_n(rows.data() + index_of(from) * page_size, n,
                    rows.data() + index_of(to) * page_size);
        rows_copied += n;
    }
};

/// One contiguous KV.
struct ToyContiguousEngine : ToyEngine {
    std::vector<Row> rows;

    std::vector<float> forward(std::span<const kvstem::Token> tokens, std::size_t start) {
        if (start > rows.size()) throw std::logic_error("rows are missing");
        rows.resize(start);
        rows.resize(start + tokens.size());
        return run(tokens, start, [&](std::size_t position) -> Row& { return rows.at(position); });
    }
};

struct ToyRowEngine : ToyContiguousEngine {
    std::uint64_t rows_read = 0;
    std::uint64_t rows_written = 0;
    std::size_t extra_bytes_read = 0;  // by which what it reads back is too long

    [[nodiscard]] std::size_t row_bytes() const noexcept { return sizeof(Row); }
    std::size_t read_rows(std::size_t begin, std::size_t end, std::span<std::byte> out) {
        step();
        const std::size_t bytes = (end - begin) * sizeof(Row) + extra_bytes_read;
        if (bytes != out.size()) return bytes;
        if (end > rows.size()) throw std::logic_error("there are no such rows");
        std::memcpy(out.data(), rows.data() + begin, bytes);
        rows_read += end - begin;
        return bytes;
    }
    void write_rows(std::size_t begin, std::size_t end, std::span<const std::byte> in) {
        step();
        if (begin > rows.size()) throw std::logic_error("rows are missing");
        if (in.size() != (end - begin) * sizeof(Row)) throw std::logic_error("half a row");
        rows.resize(begin);
        rows.resize(end);
        std::memcpy(rows.data() + begin, in.data(), in.size());
        rows_written += end - begin;
    }
};

/// Saves, loads and cuts; refuses cuts as `cuts` says.
struct ToyStateEngine : ToyContiguousEngine {
    enum class Cuts { everywhere, nowhere, last_four };
    Cuts cuts = Cuts::everywhere;
    std::uint64_t loads = 0;
    std::uint64_t saves = 0;
    std::uint64_t refusals = 0;

    std::vector<float> forward(std::span<const kvstem::Token> tokens, std::size_t start) {
        if (start != 0 && start != rows.size()) throw std::logic_error("not where the state ends");
        return ToyContiguousEngine::forward(tokens, start);
    }
    std::vector<Row> save_state() {
        step();
        ++saves;
        return rows;
    }
    void load_state(const std::vector<Row>& state) {
        rows.clear();
        step();
        rows = state;
        ++loads;
    }
    bool cut(std::size_t n) {
        step();
        const bool possible =
            n <= rows.size() &&
            (cuts == Cuts::everywhere || (cuts == Cuts::last_four && rows.size() - n <= 4));
        if (!possible) ++refusals;
        if (possible) rows.resize(n);
        return possible;
    }
};

/// What the answer is without any cache.
inline Tokens uncached_answer(const Tokens& prompt, std::size_t max_new_tokens,
                              const kvstem::reference::SamplingParams& sampling = {}) {
    ToyContiguousEngine engine;
    kvstem::reference::Sampler sampler(sampling);
    Tokens answer;
    if (prompt.empty() || max_new_tokens == 0) return answer;
    auto logits = engine.forward(prompt, 0);
    for (;;) {
        answer.push_back(sampler.sample(logits));
        if (answer.size() == max_new_tokens || engine.rows.size() == engine.context) return answer;
        logits = engine.forward(std::span(answer).last(1), engine.rows.size());
    }
}

}  // namespace kvstem_test
