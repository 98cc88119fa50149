// SPDX-License-Identifier: MIT
// expect: has_load_state
// A state that can be saved and not be loaded is of no use to anyone.

#include <cstddef>
#include <span>
#include <vector>

#include "kvstem/prefix_cached_engine.hpp"

struct Engine {
    [[nodiscard]] std::size_t max_context() const { return 16; }
    [[nodiscard]] std::size_t vocab_size() const { return 4; }
    std::vector<float> forward(std::span<const kvstem::Token>, std::size_t) { return {}; }
    std::vector<float> save_state() { return {}; }
#ifndef MUST_NOT_COMPILE
    void load_state(const std::vector<float>&) {}
#endif
    bool cut(std::size_t) { return false; }
};

kvstem::PrefixCachedEngine<Engine>* cached;
