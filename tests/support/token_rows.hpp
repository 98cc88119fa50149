// SPDX-License-Identifier: MIT
// Paged KV memory whose rows are the tokens they were computed from, so that wrong content shows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "kvstem/radix_cache.hpp"
#include "support/counting_kv.hpp"

namespace kvstem_test {

using kvstem::Admission;
using kvstem::index_of;
using kvstem::Namespace;
using kvstem::PageId;
using kvstem::PagePool;

using Ids = std::vector<PageId>;

inline Ids ids(std::span<const PageId> pages) {
    return {pages.begin(), pages.end()};
}
inline Ids ids(std::initializer_list<std::uint32_t> numbers) {
    Ids pages;
    for (const std::uint32_t number : numbers) pages.push_back(PageId{number});
    return pages;
}

/// One row a position; a copy hook as it stands, which counts its calls.
class TokenRows {
  public:
    TokenRows(std::size_t pages, std::size_t page_tokens)
        : page_tokens_(page_tokens), rows_(pages * page_tokens, -1) {}

    std::size_t copies = 0;

    void operator()(PageId from, PageId to, std::size_t rows) {
        if (rows == 0 || rows >= page_tokens_) throw std::logic_error("no partial page");
        ++copies;
        for (std::size_t row = 0; row < rows; ++row) at(to, row) = at(from, row);
    }

    /// Computes the rows of these tokens, where a lease says that its next rows go.
    template <class Lease>
    void compute(Lease& lease, std::span<const kvstem::Token> tokens) {
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            const std::size_t position = lease.written() + i;
            at(lease.block_table()[position / page_tokens_], position % page_tokens_) = tokens[i];
        }
        lease.wrote(tokens);
    }
    /// What a lease reads at the positions it has written.
    template <class Lease>
    [[nodiscard]] Tokens read(const Lease& lease) {
        Tokens tokens;
        for (std::size_t position = 0; position < lease.written(); ++position) {
            tokens.push_back(
                at(lease.block_table()[position / page_tokens_], position % page_tokens_));
        }
        return tokens;
    }
    [[nodiscard]] Tokens page(PageId page) {
        Tokens tokens;
        for (std::size_t row = 0; row < page_tokens_; ++row) tokens.push_back(at(page, row));
        return tokens;
    }

  private:
    kvstem::Token& at(PageId page, std::size_t row) {
        return rows_.at(index_of(page) * page_tokens_ + row);
    }

    std::size_t page_tokens_;
    Tokens rows_;
};

/// Acquires, computes and publishes a whole prompt.
template <class Cache>
typename Cache::Lease publish_prompt(Cache& cache, const Tokens& prompt,
                                     const Namespace& name = {}) {
    auto acquired = cache.acquire(prompt, name);
    if (!acquired) throw std::logic_error("no pages for the prompt");
    acquired.lease.wrote(std::span(prompt).subspan(acquired.lease.adopted()));
    acquired.lease.publish();
    return std::move(acquired.lease);
}

/// What the next request with this prompt adopts.
template <class Cache>
std::size_t adopted_by(Cache& cache, const Tokens& prompt, const Namespace& name = {}) {
    auto acquired = cache.acquire(prompt, name);
    if (!acquired) throw std::logic_error("no pages for the prompt");
    return acquired.lease.adopted();
}

}  // namespace kvstem_test
