// SPDX-License-Identifier: MIT
// The second half of a layer: SwiGLU, alone or as a mixture of experts.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "../config.hpp"
#include "kernels.hpp"
#include "model_config.hpp"
#include "weights.hpp"

namespace kvstem::inline KVSTEM_ABI::reference {

/// The `n_active` largest of the router's scores, largest first; of equal scores the lower index
/// comes first, so that a tie is decided the same way always. `chosen` receives the indices and
/// its size says how many.
/// Complexity: O(n_experts · n_active), without allocation.
inline void choose_experts(std::span<const float> scores, std::span<std::size_t> chosen) noexcept {
    for (std::size_t rank = 0; rank < chosen.size(); ++rank) {
        const auto taken_end = chosen.begin() + static_cast<std::ptrdiff_t>(rank);
        std::size_t best = scores.size();
        for (std::size_t e = 0; e < scores.size(); ++e) {
            if (std::find(chosen.begin(), taken_end, e) != taken_end) continue;
            // Strictly greater: the first of equals stays.
            if (best == scores.size() || scores[e] > scores[best]) best = e;
        }
        chosen[rank] = best;
    }
}

/// Computes y = feed_forward(x) for n tokens and owns the scratch for it, which grows to the
/// largest step and is never read before it is written.
/// Routing is decided per token from its own scores, so which experts a token runs does not depend
/// on its neighbours: there is no capacity per expert that a batch could exhaust (X1).
class FeedForward {
  public:
    /// x, y (n, dim). Dense: y = swiglu(x). With experts, for each token:
    ///
    ///     score = R · x                       (n_experts)
    ///     gate  = softmax(score of the n_active chosen)
    ///     y     = Σ_shared swiglu_s(x) + Σ_chosen gate[e] · swiglu_e(x)
    ///
    /// summed in this order, the chosen by falling score.
    void run(const ModelConfig& config, const LayerWeights& layer, const float* x, float* y,
             std::size_t n) {
        if (config.n_experts == 0) {
            swiglu(layer.dense, x, y, n, config.dim, config.hidden_dim);
            return;
        }
        for (std::size_t t = 0; t < n; ++t) {
            run_experts(config, layer, x + t * config.dim, y + t * config.dim);
        }
    }

  private:
    /// x, y (n, dim); gate_, value_ (n, hidden).
    ///     gate = W1 · x;  value = W3 · x;  y = W2 · (gate · sigmoid(gate) ⊙ value)
    void swiglu(const FeedForwardWeights& weights, const float* x, float* y, std::size_t n,
                std::size_t dim, std::size_t hidden) {
        gate_.resize(n * hidden);
        value_.resize(n * hidden);
        matmul(x, weights.w1.data(), gate_.data(), n, dim, hidden);
        matmul(x, weights.w3.data(), value_.data(), n, dim, hidden);
        for (std::size_t i = 0; i < n * hidden; ++i) {
            const float sigmoid = 1.0f / (1.0f + std::exp(-gate_[i]));
            gate_[i] = gate_[i] * sigmoid * value_[i];
        }
        matmul(gate_.data(), weights.w2.data(), y, n, hidden, dim);
    }

    /// x, y (dim): one token, because each token has experts of its own. An engine would sort the
    /// tokens of a batch by expert to read each expert's weights once; the sums would be the same.
    void run_experts(const ModelConfig& config, const LayerWeights& layer, const float* x,
                     float* y) {
        scores_.resize(config.n_experts);
        chosen_.resize(config.n_active);
        gates_.resize(config.n_active);
        expert_out_.resize(config.dim);
        matmul(x, layer.router.data(), scores_.data(), 1, config.dim, config.n_experts);
        choose_experts(scores_, chosen_);
        for (std::size_t a = 0; a < chosen_.size(); ++a) gates_[a] = scores_[chosen_[a]];
        softmax(gates_.data(), gates_.size());

        std::fill(y, y + config.dim, 0.0f);
        for (const FeedForwardWeights& expert : layer.shared) {
            swiglu(expert, x, expert_out_.data(), 1, config.dim, config.expert_hidden_dim);
            add_scaled(1.0f, expert_out_.data(), y, config.dim);
        }
        for (std::size_t a = 0; a < chosen_.size(); ++a) {
            const FeedForwardWeights& expert = layer.experts[chosen_[a]];
            swiglu(expert, x, expert_out_.data(), 1, config.dim, config.expert_hidden_dim);
            add_scaled(gates_[a], expert_out_.data(), y, config.dim);
        }
    }

    std::vector<float> gate_;          // (n, hidden)
    std::vector<float> value_;         // (n, hidden)
    std::vector<float> scores_;        // (n_experts)
    std::vector<float> gates_;         // (n_active)
    std::vector<std::size_t> chosen_;  // (n_active)
    std::vector<float> expert_out_;    // (dim)
};

}  // namespace kvstem
