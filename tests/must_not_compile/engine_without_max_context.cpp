// SPDX-License-Identifier: MIT
// expect: has_max_context
// An engine that does not say where its positions end is refused at the class name.

#include <cstddef>
#include <span>
#include <vector>

#include "kvstem/prefix_cached_engine.hpp"

struct Engine {
#ifndef MUST_NOT_COMPILE
    [[nodiscard]] std::size_t max_context() const { return 16; }
#endif
    [[nodiscard]] std::size_t vocab_size() const { return 4; }
    std::vector<float> forward(std::span<const kvstem::Token>, std::size_t) { return {}; }
    [[nodiscard]] std::size_t row_bytes() const { return 8; }
    std::size_t read_rows(std::size_t, std::size_t, std::span<std::byte>) { return 0; }
    void write_rows(std::size_t, std::size_t, std::span<const std::byte>) {}
};

kvstem::PrefixCachedEngine<Engine>* cached;
