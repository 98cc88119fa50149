// SPDX-License-Identifier: MIT
// The same transformer once more, as an oracle: double precision, no KV, no batches, other code.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "kvstem/reference/model.hpp"
#include "kvstem/token.hpp"

namespace support {

/// Computes logits of whole sequences from the equations alone. It shares the weights with the
/// decoder it checks and nothing else, and every position is computed from all of its tokens anew.
class NaiveModel {
  public:
    using Vector = std::vector<double>;

    explicit NaiveModel(const kvstem::reference::Model& model)
        : c_(model.config()), w_(model.weights()), classifier_(model.classifier()) {}

    /// Logits after the last of the tokens.
    Vector logits(std::span<const kvstem::Token> tokens) const {
        std::vector<Vector> x;
        for (const kvstem::Token token : tokens) {
            const auto row =
                w_.token_embedding.begin() + token * static_cast<std::ptrdiff_t>(c_.dim);
            x.emplace_back(row, row + static_cast<std::ptrdiff_t>(c_.dim));
        }
        for (std::size_t layer = 0; layer < c_.n_layers; ++layer) run_layer(layer, x);
        return times(classifier_, norm(x.back(), w_.final_norm));
    }

  private:
    static Vector times(const kvstem::reference::Tensor& matrix, const Vector& x) {
        Vector y(matrix.size() / x.size());
        for (std::size_t i = 0; i < matrix.size(); ++i) {
            y[i / x.size()] += static_cast<double>(matrix[i]) * x[i % x.size()];
        }
        return y;
    }

    Vector norm(Vector x, const kvstem::reference::Tensor& weight) const {
        double square = 0.0;
        for (const double v : x) square += v * v / static_cast<double>(x.size());
        for (std::size_t i = 0; i < x.size(); ++i) {
            x[i] *= static_cast<double>(weight[i]) /
                    std::sqrt(square + static_cast<double>(c_.norm_eps));
        }
        return x;
    }

    static Vector softmax(Vector x) {
        double sum = 0.0;
        for (double& v : x) sum += v = std::exp(v);
        for (double& v : x) v /= sum;
        return x;
    }

    static void add(Vector& x, const Vector& y, double factor = 1.0) {
        for (std::size_t i = 0; i < x.size(); ++i) x[i] += factor * y[i];
    }

    /// One head out of a row of heads, normalised and rotated by its position.
    Vector head(const Vector& row, std::size_t index, const kvstem::reference::Tensor& weight,
                std::size_t position) const {
        const auto begin = row.begin() + static_cast<std::ptrdiff_t>(index * c_.head_size);
        Vector h(begin, begin + static_cast<std::ptrdiff_t>(c_.head_size));
        if (!weight.empty()) h = norm(h, weight);
        for (std::size_t i = 0; i < c_.head_size; i += 2) {
            const double angle =
                static_cast<double>(position) *
                std::pow(static_cast<double>(c_.rope_theta),
                         -static_cast<double>(i) / static_cast<double>(c_.head_size));
            const double a = h[i];
            const double b = h[i + 1];
            h[i] = a * std::cos(angle) - b * std::sin(angle);
            h[i + 1] = a * std::sin(angle) + b * std::cos(angle);
        }
        return h;
    }

    Vector attention(std::size_t layer, const std::vector<Vector>& h, std::size_t p) const {
        const auto& w = w_.layers[layer];
        const std::size_t window = c_.windows.empty() ? 0 : c_.windows[layer];
        Vector out;
        for (std::size_t i = 0; i < c_.n_heads; ++i) {
            const std::size_t kv_head = i * c_.n_kv_heads / c_.n_heads;
            const Vector q = head(times(w.wq, h[p]), i, w.query_norm, p);
            Vector scores;
            std::vector<Vector> values;
            for (std::size_t j = 0; j <= p; ++j) {
                if (window != 0 && p - j >= window) continue;
                const Vector k = head(times(w.wk, h[j]), kv_head, w.key_norm, j);
                double score = 0.0;
                for (std::size_t d = 0; d < q.size(); ++d) score += q[d] * k[d];
                scores.push_back(score / std::sqrt(static_cast<double>(c_.head_size)));
                const Vector v = times(w.wv, h[j]);
                const auto at = v.begin() + static_cast<std::ptrdiff_t>(kv_head * c_.head_size);
                values.emplace_back(at, at + static_cast<std::ptrdiff_t>(c_.head_size));
            }
            const Vector weights = softmax(scores);
            Vector sum(c_.head_size);
            for (std::size_t j = 0; j < values.size(); ++j) add(sum, values[j], weights[j]);
            out.insert(out.end(), sum.begin(), sum.end());
        }
        return times(w.wo, out);
    }

    static Vector swiglu(const kvstem::reference::FeedForwardWeights& w, const Vector& x) {
        Vector gate = times(w.w1, x);
        const Vector value = times(w.w3, x);
        for (std::size_t i = 0; i < gate.size(); ++i) {
            gate[i] = gate[i] / (1.0 + std::exp(-gate[i])) * value[i];
        }
        return times(w.w2, gate);
    }

    Vector feed_forward(std::size_t layer, const Vector& x) const {
        const auto& w = w_.layers[layer];
        if (c_.n_experts == 0) return swiglu(w.dense, x);
        const Vector scores = times(w.router, x);
        std::vector<std::size_t> order(scores.size());
        for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
        std::ranges::stable_sort(order, [&](auto a, auto b) { return scores[a] > scores[b]; });
        order.resize(c_.n_active);
        Vector chosen;
        for (const std::size_t e : order) chosen.push_back(scores[e]);
        const Vector gates = softmax(chosen);
        Vector y(c_.dim);
        for (const auto& shared : w.shared) add(y, swiglu(shared, x));
        for (std::size_t a = 0; a < order.size(); ++a) {
            add(y, swiglu(w.experts[order[a]], x), gates[a]);
        }
        return y;
    }

    void run_layer(std::size_t layer, std::vector<Vector>& x) const {
        const auto& w = w_.layers[layer];
        std::vector<Vector> h;
        for (const Vector& row : x) h.push_back(norm(row, w.attention_norm));
        for (std::size_t p = 0; p < x.size(); ++p) add(x[p], attention(layer, h, p));
        for (Vector& row : x) add(row, feed_forward(layer, norm(row, w.feed_forward_norm)));
    }

    const kvstem::reference::ModelConfig& c_;
    const kvstem::reference::Weights& w_;
    const kvstem::reference::Tensor& classifier_;
};

}  // namespace support
