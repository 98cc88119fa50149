// SPDX-License-Identifier: MIT
// What a step of the decoder returns: one row of scores over the vocabulary per token asked for.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "../config.hpp"
#include "../errors.hpp"

namespace kvstem::inline KVSTEM_ABI::reference {

/// A matrix of logits, (n_rows, vocab_size). Row i scores the token that follows the i-th token
/// asked for; a larger score means likelier, and softmax makes probabilities of a row.
/// A value like a vector; nothing in it refers to the decoder that made it.
class Logits {
  public:
    Logits(std::size_t n_rows, std::size_t vocab_size)
        : n_rows_(n_rows), vocab_size_(vocab_size), values_(n_rows * vocab_size) {}

    [[nodiscard]] std::size_t n_rows() const noexcept { return n_rows_; }
    [[nodiscard]] std::size_t vocab_size() const noexcept { return vocab_size_; }

    /// Throws: InvalidArgument if there is no such row.
    [[nodiscard]] std::span<const float> row(std::size_t index) const {
        if (index >= n_rows_) {
            kvstem::detail::fail<InvalidArgument>("logits: row %zu of %zu", index, n_rows_);
        }
        return {values_.data() + index * vocab_size_, vocab_size_};
    }

    /// The scores after the last token: what the next token is sampled from.
    [[nodiscard]] std::span<const float> last() const { return row(n_rows_ - 1); }

    /// All rows one after the other, (n_rows, vocab_size).
    [[nodiscard]] std::span<float> values() noexcept { return values_; }
    [[nodiscard]] std::span<const float> values() const noexcept { return values_; }

    /// Equality of bits, as for KV rows: a NaN equals itself, −0 differs from 0.
    friend bool operator==(const Logits& a, const Logits& b) noexcept {
        if (a.n_rows_ != b.n_rows_ || a.vocab_size_ != b.vocab_size_) return false;
        return a.values_.empty() || std::memcmp(a.values_.data(), b.values_.data(),
                                                a.values_.size() * sizeof(float)) == 0;
    }

  private:
    std::size_t n_rows_;
    std::size_t vocab_size_;
    std::vector<float> values_;  // (n_rows, vocab_size)
};

}  // namespace kvstem
