// SPDX-License-Identifier: MIT
// expect: has_write_rows
// An engine whose rows can be read but not written has no form, and the message says what is
// missing.

#include <cstddef>
#include <span>
#include <vector>

#include "kvstem/prefix_cached_engine.hpp"

struct Engine {
    [[nodiscard]] std::size_t max_context() const { return 16; }
    [[nodiscard]] std::size_t vocab_size() const { return 4; }
    std::vector<float> forward(std::span<const kvstem::Token>, std::size_t) { return {}; }
    [[nodiscard]] std::size_t row_bytes() const { return 8; }
    std::size_t read_rows(std::size_t, std::size_t, std::span<std::byte>) { return 0; }
#ifndef MUST_NOT_COMPILE
    void write_rows(std::size_t, std::size_t, std::span<const std::byte>) {}
#endif
};

kvstem::PrefixCachedEngine<Engine>* cached;
