// SPDX-License-Identifier: MIT
// One of two engines in a program, each with its own copy of kvstem, which may be of another version.
// ENGINE is the name of its function. Only types of the language cross between the units.

#include <cstddef>
#include <utility>
#include <vector>

#include "kvstem/kvstem.hpp"

namespace {

struct RowsOfTwo {
    std::size_t rows = 0;

    [[nodiscard]] std::size_t length() const noexcept { return rows; }
    [[nodiscard]] std::size_t bytes() const noexcept { return rows * 2; }
    [[nodiscard]] RowsOfTwo prefix(std::size_t n) const { return {n}; }
};

std::size_t reused_snapshot(const std::vector<kvstem::Token>& first,
                            const std::vector<kvstem::Token>& second) {
    kvstem::PrefixCache<RowsOfTwo> cache;
    cache.store(first, RowsOfTwo{first.size()});
    const auto hit = cache.acquire(second);
    return hit ? hit->tokens : 0;
}

std::size_t reused_pages(const std::vector<kvstem::Token>& first,
                         const std::vector<kvstem::Token>& second) {
    kvstem::RadixCache<> cache({.page_tokens = 2}, kvstem::PagePool(8));
    {
        auto acquired = cache.acquire(first);
        acquired.lease.wrote(first);
        acquired.lease.publish();
    }
    return cache.acquire(second).lease.adopted();
}

bool refuses_pages_of_no_tokens() {
    try {
        kvstem::RadixCache<> cache({.page_tokens = 0}, kvstem::PagePool(8));
        return false;
    } catch (const kvstem::InvalidArgument&) {
        return true;
    }
}

}  // namespace

/// Tokens reused by both caches; 0 if a bad page size is not refused by an exception of this copy.
std::size_t ENGINE() {
    const std::vector<kvstem::Token> first{1, 2, 3, 4, 5};
    const std::vector<kvstem::Token> second{1, 2, 3, 4, 9};
    if (!refuses_pages_of_no_tokens()) return 0;
    return reused_snapshot(first, second) + reused_pages(first, second);
}
