// SPDX-License-Identifier: MIT
// A model: a configuration and the weights that fit it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "../config.hpp"
#include "../errors.hpp"
#include "model_config.hpp"
#include "presets.hpp"
#include "weights.hpp"

namespace kvstem::inline KVSTEM_ABI::reference {

/// A configuration together with weights whose every tensor has the shape it asks for. The decoder
/// trusts these shapes, so they are checked here, once.
///
/// Invariants: the configuration is valid; every tensor has exactly its size; never changes.
/// Exceptions: the constructor throws InvalidArgument naming the tensor or value that is wrong.
/// Threads: immutable, so any number of decoders may read one model at the same time.
///
///     reference::Model model = reference::Model::from_seed(reference::presets::demo(), 42);
///     reference::Decoder decoder(std::move(model));
class Model {
  public:
    Model(ModelConfig config, Weights weights)
        : config_(std::move(config)), weights_(std::move(weights)) {
        validate(config_);
        check_counts();
        visit_weights(config_, weights_, check_shape);
    }

    /// A model with weights drawn from a seed (see weights_from_seed).
    [[nodiscard]] static Model from_seed(const ModelConfig& config, std::uint64_t seed) {
        return Model(config, weights_from_seed(config, seed));
    }

    [[nodiscard]] const ModelConfig& config() const noexcept { return config_; }
    [[nodiscard]] const Weights& weights() const noexcept { return weights_; }

    /// The matrix of the last product, logits = W · x, of shape (vocab_size, dim).
    [[nodiscard]] const Tensor& classifier() const noexcept {
        return config_.classifier == Classifier::tied ? weights_.token_embedding
                                                      : weights_.classifier;
    }

  private:
    static void check_shape(const char* name, const Tensor& tensor, std::size_t out,
                            std::size_t in) {
        const std::size_t expected = in == 0 ? out : out * in;
        if (tensor.size() == expected) return;
        kvstem::detail::fail<InvalidArgument>("model: tensor %s has %zu elements, expected %zu",
                                              name, tensor.size(), expected);
    }

    void check_counts() const {
        using kvstem::detail::fail;
        if (weights_.layers.size() != config_.n_layers) {
            fail<InvalidArgument>("model: weights for %zu layers, expected %zu",
                                  weights_.layers.size(), config_.n_layers);
        }
        for (const LayerWeights& layer : weights_.layers) {
            if (layer.experts.size() != config_.n_experts) {
                fail<InvalidArgument>("model: a layer has %zu experts, expected %zu",
                                      layer.experts.size(), config_.n_experts);
            }
            if (layer.shared.size() != config_.n_shared) {
                fail<InvalidArgument>("model: a layer has %zu shared experts, expected %zu",
                                      layer.shared.size(), config_.n_shared);
            }
        }
    }

    ModelConfig config_;
    Weights weights_;
};

}  // namespace kvstem
