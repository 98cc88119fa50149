// SPDX-License-Identifier: MIT
// The shape of a model: every number that decides how large a tensor is or what a formula does.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "../config.hpp"
#include "../errors.hpp"

namespace kvstem::inline KVSTEM_ABI::reference {

/// Whether queries and keys are normalised per head before they are rotated (Qwen3 does).
enum class QueryKeyNorm { off, per_head };

/// Where the logits' matrix comes from: the token embedding again, or a tensor of its own.
enum class Classifier { tied, separate };

/// What a KV must know of a model: one key row and one value row of `row_size` floats per layer and
/// position.
struct KvShape {
    std::size_t n_layers = 0;
    std::size_t row_size = 0;  // n_kv_heads · head_size

    friend bool operator==(const KvShape&, const KvShape&) = default;
};

/// The hyperparameters of a decoder-only transformer of the Llama family.
///
/// One layer is, for the residual stream x (dim):
///
///     x += Wo · attention(norm(x))              grouped-query, over a window or everything
///     x += feed_forward(norm(x))                SwiGLU, dense or a mixture of experts
///
/// A plain value; `validate` says whether its numbers fit together, and everything that takes a
/// configuration calls it first.
struct ModelConfig {
    std::size_t dim = 0;         // width of the residual stream
    std::size_t hidden_dim = 0;  // inner width of the dense feed-forward; unused with experts
    std::size_t n_layers = 0;
    std::size_t n_heads = 0;     // query heads
    std::size_t n_kv_heads = 0;  // key/value heads; n_heads / n_kv_heads queries share one
    std::size_t head_size = 0;   // need not be dim / n_heads; even, because RoPE turns pairs
    std::size_t vocab_size = 0;
    std::size_t max_context = 0;  // positions 0 … max_context − 1 exist
    float rope_theta = 10000.0f;
    float norm_eps = 1e-5f;
    QueryKeyNorm query_key_norm = QueryKeyNorm::off;
    Classifier classifier = Classifier::tied;

    // Mixture of experts; all zero for a dense model.
    std::size_t n_experts = 0;          // routed experts per layer
    std::size_t n_active = 0;           // of which each token runs this many
    std::size_t n_shared = 0;           // experts that every token runs besides
    std::size_t expert_hidden_dim = 0;  // inner width of one expert, routed or shared

    /// Per layer: 0 attends to everything before, W > 0 only to the last W positions, its own
    /// included. Empty means that every layer attends to everything.
    std::vector<std::size_t> windows;

    /// Width of all query heads together, the input of Wo.
    [[nodiscard]] std::size_t query_size() const noexcept { return n_heads * head_size; }

    /// Width of one key row or one value row.
    [[nodiscard]] std::size_t row_size() const noexcept { return n_kv_heads * head_size; }

    [[nodiscard]] KvShape kv_shape() const noexcept { return {n_layers, row_size()}; }

    /// The window of one layer, 0 for full attention.
    [[nodiscard]] std::size_t window_of(std::size_t layer) const noexcept {
        return windows.empty() ? 0 : windows[layer];
    }

    /// The oldest position that `layer` reads when it computes `position`: max(0, p − W + 1).
    [[nodiscard]] std::size_t first_attended(std::size_t layer,
                                             std::size_t position) const noexcept {
        const std::size_t window = window_of(layer);
        return window == 0 || position < window ? 0 : position + 1 - window;
    }

    /// W if all layers slide by that one window, so that rows behind it are never read again by
    /// anyone; 0 if any layer still needs them. Only a model with a sliding window may give pages
    /// back while it runs.
    [[nodiscard]] std::size_t sliding_window() const noexcept {
        if (windows.empty()) return 0;
        for (const std::size_t window : windows) {
            if (window != windows.front()) return 0;
        }
        return windows.front();
    }
};

namespace detail {

inline void check_between(const char* name, std::size_t value, std::size_t least,
                          std::size_t most) {
    if (value >= least && value <= most) return;
    kvstem::detail::fail<InvalidArgument>("model: %s is %zu, must be %zu … %zu", name, value, least,
                                          most);
}

inline void check_experts(const ModelConfig& config) {
    if (config.n_experts == 0) {
        check_between("n_active of a model without experts", config.n_active, 0, 0);
        check_between("n_shared of a model without experts", config.n_shared, 0, 0);
        return;
    }
    check_between("n_active", config.n_active, 1, config.n_experts);
    check_between("n_shared", config.n_shared, 0, 1u << 10);
    check_between("expert_hidden_dim", config.expert_hidden_dim, 1, 1u << 20);
}

}  // namespace detail

/// Refuses a configuration whose numbers do not fit together.
/// The upper limits are far above any model this decoder could run in reasonable time; they are
/// chosen so that no product of sizes anywhere in reference/ can overflow 64 bits, and so that
/// every position is exact in a float (RoPE multiplies with it).
/// Throws: InvalidArgument naming the value.
inline void validate(const ModelConfig& config) {
    using detail::check_between;
    using kvstem::detail::fail;
    check_between("dim", config.dim, 1, 1u << 20);
    check_between("n_layers", config.n_layers, 1, 1u << 10);
    check_between("n_heads", config.n_heads, 1, 1u << 10);
    check_between("n_kv_heads", config.n_kv_heads, 1, config.n_heads);
    check_between("head_size", config.head_size, 2, 1u << 10);
    check_between("vocab_size", config.vocab_size, 1, 1u << 24);
    check_between("max_context", config.max_context, 1, 1u << 24);
    check_between("n_experts", config.n_experts, 0, 1u << 10);
    detail::check_experts(config);
    if (config.n_experts == 0) check_between("hidden_dim", config.hidden_dim, 1, 1u << 20);
    if (config.n_heads % config.n_kv_heads != 0) {
        fail<InvalidArgument>("model: n_heads %zu is not a multiple of n_kv_heads %zu",
                              config.n_heads, config.n_kv_heads);
    }
    if (config.head_size % 2 != 0) {
        fail<InvalidArgument>("model: head_size is %zu, must be even", config.head_size);
    }
    if (!(config.rope_theta > 0.0f) || !std::isfinite(config.rope_theta)) {
        fail<InvalidArgument>("model: rope_theta is %g, must be positive and finite",
                              static_cast<double>(config.rope_theta));
    }
    if (!(config.norm_eps > 0.0f) || !std::isfinite(config.norm_eps)) {
        fail<InvalidArgument>("model: norm_eps is %g, must be positive and finite",
                              static_cast<double>(config.norm_eps));
    }
    if (!config.windows.empty() && config.windows.size() != config.n_layers) {
        fail<InvalidArgument>("model: windows has %zu entries for %zu layers",
                              config.windows.size(), config.n_layers);
    }
}

}  // namespace kvstem
