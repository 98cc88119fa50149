// SPDX-License-Identifier: MIT
// expect: has_page_bytes
// An engine with pages has to say how large they are, or its statistics would lie.

#include <cstddef>
#include <span>
#include <vector>

#include "kvstem/prefix_cached_engine.hpp"

struct Engine {
    [[nodiscard]] std::size_t max_context() const { return 16; }
    [[nodiscard]] std::size_t vocab_size() const { return 4; }
    [[nodiscard]] std::size_t page_tokens() const { return 16; }
    [[nodiscard]] std::size_t capacity_pages() const { return 8; }
#ifndef MUST_NOT_COMPILE
    [[nodiscard]] std::size_t page_bytes() const { return 1024; }
#endif
    std::vector<float> forward(std::span<const kvstem::Token>, std::size_t,
                               std::span<const kvstem::PageId>) {
        return {};
    }
};

kvstem::PrefixCachedEngine<Engine>* cached;
