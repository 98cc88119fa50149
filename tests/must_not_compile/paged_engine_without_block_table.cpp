// SPDX-License-Identifier: MIT
// expect: has_forward_over_pages
// An engine with pages is refused if it does not take a block table.

#include <cstddef>
#include <span>
#include <vector>

#include "kvstem/prefix_cached_engine.hpp"

struct Engine {
    [[nodiscard]] std::size_t max_context() const { return 16; }
    [[nodiscard]] std::size_t vocab_size() const { return 4; }
    [[nodiscard]] std::size_t page_tokens() const { return 16; }
    [[nodiscard]] std::size_t capacity_pages() const { return 8; }
    [[nodiscard]] std::size_t page_bytes() const { return 1024; }
#ifndef MUST_NOT_COMPILE
    std::vector<float> forward(std::span<const kvstem::Token>, std::size_t,
                               std::span<const kvstem::PageId>) {
        return {};
    }
#else
    std::vector<float> forward(std::span<const kvstem::Token>, std::size_t) { return {}; }
#endif
};

kvstem::PrefixCachedEngine<Engine>* cached;
