// SPDX-License-Identifier: MIT
// The tensors of a model, one walk over all of them, and weights drawn from a seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../config.hpp"
#include "model_config.hpp"
#include "random.hpp"

namespace kvstem::inline KVSTEM_ABI::reference {

/// A dense row-major array. A matrix of shape (out, in) maps x (in) to y (out):
/// y[o] = Σ_i w[o · in + i] · x[i].
using Tensor = std::vector<float>;

/// SwiGLU: y = W2 · (silu(W1 · x) ⊙ (W3 · x)), of inner width `hidden`.
struct FeedForwardWeights {
    Tensor w1;  // (hidden, dim)  the gate
    Tensor w2;  // (dim, hidden)  back down
    Tensor w3;  // (hidden, dim)  the value
};

/// What one layer multiplies with.
struct LayerWeights {
    Tensor attention_norm;     // (dim)
    Tensor wq;                 // (query_size, dim)
    Tensor wk;                 // (row_size, dim)
    Tensor wv;                 // (row_size, dim)
    Tensor wo;                 // (dim, query_size)
    Tensor query_norm;         // (head_size), with QueryKeyNorm::per_head only
    Tensor key_norm;           // (head_size), with QueryKeyNorm::per_head only
    Tensor feed_forward_norm;  // (dim)

    FeedForwardWeights dense;                 // of width hidden_dim, without experts only
    Tensor router;                            // (n_experts, dim), with experts only
    std::vector<FeedForwardWeights> experts;  // n_experts of width expert_hidden_dim
    std::vector<FeedForwardWeights> shared;   // n_shared of width expert_hidden_dim
};

/// All tensors of a model.
struct Weights {
    Tensor token_embedding;            // (vocab_size, dim)
    std::vector<LayerWeights> layers;  // n_layers
    Tensor final_norm;                 // (dim)
    Tensor classifier;                 // (vocab_size, dim), with Classifier::separate only
};

namespace detail {

template <class FeedForward, class Visitor>
void visit_feed_forward(FeedForward& weights, std::size_t dim, std::size_t hidden, Visitor& visit) {
    visit("w1", weights.w1, hidden, dim);
    visit("w2", weights.w2, dim, hidden);
    visit("w3", weights.w3, hidden, dim);
}

template <class Layer, class Visitor>
void visit_layer(const ModelConfig& config, Layer& layer, Visitor& visit) {
    const std::size_t dim = config.dim;
    visit("attention_norm", layer.attention_norm, dim, 0);
    visit("wq", layer.wq, config.query_size(), dim);
    visit("wk", layer.wk, config.row_size(), dim);
    visit("wv", layer.wv, config.row_size(), dim);
    visit("wo", layer.wo, dim, config.query_size());
    if (config.query_key_norm == QueryKeyNorm::per_head) {
        visit("query_norm", layer.query_norm, config.head_size, 0);
        visit("key_norm", layer.key_norm, config.head_size, 0);
    }
    visit("feed_forward_norm", layer.feed_forward_norm, dim, 0);
    if (config.n_experts == 0) {
        visit_feed_forward(layer.dense, dim, config.hidden_dim, visit);
        return;
    }
    visit("router", layer.router, config.n_experts, dim);
    for (auto& expert : layer.experts) {
        visit_feed_forward(expert, dim, config.expert_hidden_dim, visit);
    }
    for (auto& expert : layer.shared) {
        visit_feed_forward(expert, dim, config.expert_hidden_dim, visit);
    }
}

}  // namespace detail

/// Calls `visit(name, tensor, out, in)` for every tensor the configuration has, always in the same
/// order; `in` is 0 for a vector of norm weights of length `out`. The single place that knows which
/// tensors there are and what shape they have: seeding, checking and hashing all walk through here.
/// `AnyWeights` is `Weights` or `const Weights`, with its layers and experts already counted out.
template <class AnyWeights, class Visitor>
void visit_weights(const ModelConfig& config, AnyWeights& weights, Visitor&& visit) {
    visit("token_embedding", weights.token_embedding, config.vocab_size, config.dim);
    for (auto& layer : weights.layers) detail::visit_layer(config, layer, visit);
    visit("final_norm", weights.final_norm, config.dim, std::size_t{0});
    if (config.classifier == Classifier::separate) {
        visit("classifier", weights.classifier, config.vocab_size, config.dim);
    }
}

/// Draws all weights of a model from a seed: the same bits on every platform and compiler.
///
/// A matrix is uniform in [−s, s) with s = 2^−k, the largest k for which s ≥ √(3 / in): then
/// a sum over `in` products has about the variance of its inputs, and activations neither die out
/// nor blow up on their way through the layers. A power of two, because scaling by it never rounds.
/// Norm weights are uniform in [0.75, 1.25): around one, yet none of them one, so that a decoder
/// that forgets them is found out.
/// Throws: InvalidArgument if the configuration is not valid.
inline Weights weights_from_seed(const ModelConfig& config, std::uint64_t seed) {
    validate(config);
    Weights weights;
    weights.layers.resize(config.n_layers);
    for (LayerWeights& layer : weights.layers) {
        layer.experts.resize(config.n_experts);
        layer.shared.resize(config.n_shared);
    }
    SplitMix64 random(seed);
    visit_weights(config, weights,
                  [&](const char*, Tensor& tensor, std::size_t out, std::size_t in) {
                      tensor.resize(in == 0 ? out : out * in);
                      if (in == 0) {
                          for (float& weight : tensor) {
                              weight = 1.0f + random.signed_unit() * 0.25f;
                          }
                          return;
                      }
                      float scale = 1.0f;
                      for (std::size_t n = in; n >= 12; n /= 4) scale *= 0.5f;  // 3 · 4^k ≤ in
                      for (float& weight : tensor) weight = random.signed_unit() * scale;
                  });
    return weights;
}

}  // namespace kvstem
