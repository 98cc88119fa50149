// SPDX-License-Identifier: MIT
// A KV whose rows are the tokens they were computed from, so that wrong content shows, and which
// counts what is done to it.
#pragma once

#include <cstddef>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "kvstem/token.hpp"

namespace kvstem_test {

using Tokens = std::vector<kvstem::Token>;

/// first, first + 1, … : n tokens.
inline Tokens counted(std::size_t n, kvstem::Token first = 0) {
    Tokens tokens;
    for (std::size_t i = 0; i < n; ++i) tokens.push_back(first + static_cast<kvstem::Token>(i));
    return tokens;
}

inline Tokens joined(Tokens a, const Tokens& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

struct KvCounts {
    std::size_t copies = 0;
    std::size_t moves = 0;
    std::size_t bytes_copied = 0;
    std::size_t prefixes = 0;
    std::size_t truncations = 0;
};

/// Of all KV types below, since it was last assigned to.
inline KvCounts kv_counts;

/// The common part of the KV types in here and in archetypes.hpp.
class CountingRows {
  public:
    static constexpr std::size_t bytes_per_position = 8;

    CountingRows() = default;
    explicit CountingRows(std::span<const kvstem::Token> computed)
        : rows_(computed.begin(), computed.end()) {}
    CountingRows(const CountingRows& other) : rows_(other.rows_) {
        ++kv_counts.copies;
        kv_counts.bytes_copied += bytes();
    }
    CountingRows(CountingRows&& other) noexcept : rows_(std::exchange(other.rows_, {})) {
        ++kv_counts.moves;
    }
    CountingRows& operator=(const CountingRows& other) {
        return *this = CountingRows(other);  // as one copy and one move
    }
    CountingRows& operator=(CountingRows&& other) noexcept {
        rows_ = std::exchange(other.rows_, {});
        ++kv_counts.moves;
        return *this;
    }
    ~CountingRows() = default;

    [[nodiscard]] std::size_t length() const noexcept { return rows_.size(); }
    [[nodiscard]] std::size_t bytes() const noexcept { return rows_.size() * bytes_per_position; }
    [[nodiscard]] const Tokens& rows() const noexcept { return rows_; }

  protected:
    [[nodiscard]] std::span<const kvstem::Token> first_rows(std::size_t n) const {
        if (n > rows_.size()) throw std::logic_error("asked for more positions than there are");
        ++kv_counts.prefixes;
        kv_counts.bytes_copied += n * bytes_per_position;
        return std::span(rows_).first(n);
    }
    void drop_rows_from(std::size_t n) {
        if (n > rows_.size()) throw std::logic_error("cut behind the last position");
        ++kv_counts.truncations;
        rows_.resize(n);
    }

  private:
    Tokens rows_;
};

/// The usual contiguous KV: copied as a whole, then truncated.
class CountingKv : public CountingRows {
  public:
    using CountingRows::CountingRows;
    void truncate(std::size_t n) { drop_rows_from(n); }

    /// The greatest length ≤ n that a KV of `length` positions can be cut to, for the naive models.
    static std::size_t cut(std::size_t /*length*/, std::size_t n) { return n; }
};

}  // namespace kvstem_test
