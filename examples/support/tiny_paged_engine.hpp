// SPDX-License-Identifier: MIT
// A stand-in for an engine that keeps KV in pages: small enough to read, and wrong if pages are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvstem/token.hpp"

namespace support {

/// The row of a position is a number made of its token and of the row before it, as the KV of a
/// model depends on all tokens before. So a page that is not what the request adopted it for gives
/// another answer.
class TinyPagedEngine {
  public:
    TinyPagedEngine(std::size_t pages, std::size_t page_tokens)
        : page_tokens_(page_tokens), rows_(pages * page_tokens) {}

    /// Computes the rows of `tokens` at the positions from `start` on, where the block table says
    /// they are; reads the row before them. Returns the token that follows the last.
    kvstem::Token forward(std::span<const kvstem::Token> tokens, std::size_t start,
                          std::span<const kvstem::PageId> table) {
        std::uint64_t row = start == 0 ? 1 : row_at(start - 1, table);
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            row = (row + static_cast<std::uint64_t>(tokens[i])) * 0x9E37'79B9'7F4A'7C15ull;
            row ^= row >> 29u;
            row_at(start + i, table) = row;
        }
        rows_computed_ += tokens.size();
        return static_cast<kvstem::Token>(row % 1000);
    }

    [[nodiscard]] std::size_t rows_computed() const noexcept { return rows_computed_; }

  private:
    std::uint64_t& row_at(std::size_t position, std::span<const kvstem::PageId> table) {
        const std::size_t page = kvstem::index_of(table[position / page_tokens_]);
        return rows_[page * page_tokens_ + position % page_tokens_];
    }

    std::size_t page_tokens_;
    std::vector<std::uint64_t> rows_;
    std::size_t rows_computed_ = 0;
};

}  // namespace support
