// SPDX-License-Identifier: MIT
// expect: has_cut
// An engine that saves and loads its state also has to say whether it can cut it.

#include <cstddef>
#include <span>
#include <vector>

#include "kvstem/prefix_cached_engine.hpp"

struct Engine {
    [[nodiscard]] std::size_t max_context() const { return 16; }
    [[nodiscard]] std::size_t vocab_size() const { return 4; }
    std::vector<float> forward(std::span<const kvstem::Token>, std::size_t) { return {}; }
    std::vector<float> save_state() { return {}; }
    void load_state(const std::vector<float>&) {}
#ifndef MUST_NOT_COMPILE
    bool cut(std::size_t) { return false; }
#endif
};

kvstem::PrefixCachedEngine<Engine>* cached;
