// SPDX-License-Identifier: MIT
// Small configurations, one for each kind of model that the caches must get right.
#pragma once

#include <array>

#include "../config.hpp"
#include "model_config.hpp"

namespace kvstem::inline KVSTEM_ABI::reference {

/// A configuration and what to call it.
struct Preset {
    const char* name;
    ModelConfig config;
};

/// The five `_tiny` presets compute a token in microseconds and exist for tests; sizes are chosen
/// to be odd for vector code (24, 20, 12 are no multiples of 16) where the kind of model allows it.
/// `demo` is large enough that skipping work can be felt.
namespace presets {

/// Dense, grouped queries, tied classifier: the Llama family.
[[nodiscard]] inline ModelConfig llama_tiny() {
    ModelConfig config;
    config.dim = 24;
    config.hidden_dim = 40;
    config.n_layers = 2;
    config.n_heads = 4;
    config.n_kv_heads = 2;
    config.head_size = 6;
    config.vocab_size = 64;
    config.max_context = 1024;
    return config;
}

/// Per-head norms of queries and keys, heads wider than dim / n_heads, a large RoPE base: Qwen3.
[[nodiscard]] inline ModelConfig qwen3_tiny() {
    ModelConfig config = llama_tiny();
    config.n_layers = 3;
    config.head_size = 8;
    config.rope_theta = 1'000'000.0f;
    config.norm_eps = 1e-6f;
    config.query_key_norm = QueryKeyNorm::per_head;
    return config;
}

/// Six experts of which each token runs two, besides one that all share; separate classifier: GLM.
[[nodiscard]] inline ModelConfig glm_moe_tiny() {
    ModelConfig config = llama_tiny();
    config.dim = 20;
    config.hidden_dim = 0;
    config.head_size = 4;
    config.classifier = Classifier::separate;
    config.n_experts = 6;
    config.n_active = 2;
    config.n_shared = 1;
    config.expert_hidden_dim = 12;
    return config;
}

/// Every layer attends to the last 8 positions: pages behind the window may be given back. The
/// context is long, so that a request can slide for a long time.
[[nodiscard]] inline ModelConfig windowed_tiny() {
    ModelConfig config = llama_tiny();
    config.max_context = 32768;
    config.windows = {8, 8};
    return config;
}

/// Windowed layers around a full one: the full layer needs every row, so nothing may be given back.
[[nodiscard]] inline ModelConfig mixed_window_tiny() {
    ModelConfig config = llama_tiny();
    config.n_layers = 3;
    config.windows = {6, 0, 6};
    return config;
}

/// For examples: 3 million parameters (12 MB), a vocabulary as large as the smallest llama2.c
/// tokenizer's, and a prefill of a few hundred tokens that takes a noticeable fraction of a second.
[[nodiscard]] inline ModelConfig demo() {
    ModelConfig config;
    config.dim = 256;
    config.hidden_dim = 688;
    config.n_layers = 4;
    config.n_heads = 8;
    config.n_kv_heads = 4;
    config.head_size = 32;
    config.vocab_size = 512;
    config.max_context = 4096;
    return config;
}

/// The presets that are cheap enough to sweep in a test.
[[nodiscard]] inline std::array<Preset, 5> tiny() {
    return {{{"llama_tiny", llama_tiny()},
             {"qwen3_tiny", qwen3_tiny()},
             {"glm_moe_tiny", glm_moe_tiny()},
             {"windowed_tiny", windowed_tiny()},
             {"mixed_window_tiny", mixed_window_tiny()}}};
}

/// Every preset, `demo` included.
[[nodiscard]] inline std::array<Preset, 6> all() {
    return {{{"llama_tiny", llama_tiny()},
             {"qwen3_tiny", qwen3_tiny()},
             {"glm_moe_tiny", glm_moe_tiny()},
             {"windowed_tiny", windowed_tiny()},
             {"mixed_window_tiny", mixed_window_tiny()},
             {"demo", demo()}}};
}

}  // namespace presets

}  // namespace kvstem
