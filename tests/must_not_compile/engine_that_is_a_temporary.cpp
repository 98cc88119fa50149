// SPDX-License-Identifier: MIT
// expect: Engine
// The wrapper refers to its engine: one that is gone with the statement is refused.

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
    void write_rows(std::size_t, std::size_t, std::span<const std::byte>) {}
};

void wrap([[maybe_unused]] Engine& engine) {
#ifdef MUST_NOT_COMPILE
    kvstem::PrefixCachedEngine<Engine> cached{Engine{}};
#else
    kvstem::PrefixCachedEngine<Engine> cached{engine};
#endif
}
