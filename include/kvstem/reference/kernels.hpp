// SPDX-License-Identifier: MIT
// The arithmetic of the decoder: five small functions in which every floating-point sum is written.
//
// A warm answer can equal a cold one bit for bit only if no sum depends on how tokens were grouped
// into calls (rule X1). Floating-point addition is not associative, so each sum below has one
// order, fixed by its own length and by nothing else: not by how many tokens are computed together,
// not by where a row is stored, not by which other sequences share the step. The functions are no
// templates: contiguous and paged runs execute the same ones.
//
// Compile what includes this with -ffp-contract=off. Otherwise a compiler for a machine with fused
// multiply-add may round a product in one inlined copy of a loop and not in another, and the last
// bit would depend on inlining. And never with -ffast-math, which allows reordering.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "../config.hpp"

namespace kvstem::inline KVSTEM_ABI::reference {

/// Partial sums that `dot` keeps side by side: enough independent additions to hide their latency,
/// and a shape that a compiler turns into vector registers without being allowed to reorder.
inline constexpr std::size_t dot_lanes = 16;

/// Σ_i a[i] · b[i] for i in 0 … n − 1.
/// Order: lane j sums the elements i ≡ j (mod 16) upwards; then the lanes are folded in halves,
/// j with j + 8, j + 4, j + 2, j + 1.
[[nodiscard]] inline float dot(const float* a, const float* b, std::size_t n) noexcept {
    float lane[dot_lanes] = {};
    const std::size_t whole = n - n % dot_lanes;
    for (std::size_t i = 0; i < whole; i += dot_lanes) {
        for (std::size_t j = 0; j < dot_lanes; ++j) lane[j] += a[i + j] * b[i + j];
    }
    for (std::size_t i = whole; i < n; ++i) lane[i - whole] += a[i] * b[i];
    for (std::size_t width = dot_lanes / 2; width > 0; width /= 2) {
        for (std::size_t j = 0; j < width; ++j) lane[j] += lane[j + width];
    }
    return lane[0];
}

/// y = x · Wᵀ: y[t][o] = Σ_i w[o][i] · x[t][i], with x (n, in), w (out, in), y (n, out).
/// In a prefill each weight is fetched from memory once per block of tokens and not once per token,
/// and a row of x, once it is near, serves a few rows of W. Blocking chooses only when a sum is
/// made; the sum is `dot` either way.
inline void matmul(const float* x, const float* w, float* y, std::size_t n, std::size_t in,
                   std::size_t out) noexcept {
    constexpr std::size_t tokens = 32;
    constexpr std::size_t rows = 4;
    for (std::size_t begin = 0; begin < n; begin += tokens) {
        const std::size_t end = std::min(n, begin + tokens);
        for (std::size_t first = 0; first < out; first += rows) {
            const std::size_t last = std::min(out, first + rows);
            for (std::size_t t = begin; t < end; ++t) {
                for (std::size_t o = first; o < last; ++o) {
                    y[t * out + o] = dot(w + o * in, x + t * in, in);
                }
            }
        }
    }
}

/// RMSNorm: y[i] = weight[i] · x[i] / √(mean(x²) + eps), all of length n. y may be x.
inline void rms_norm(const float* x, const float* weight, float eps, float* y,
                     std::size_t n) noexcept {
    const float mean_square = dot(x, x, n) / static_cast<float>(n);
    const float scale = 1.0f / std::sqrt(mean_square + eps);
    for (std::size_t i = 0; i < n; ++i) y[i] = weight[i] * (x[i] * scale);
}

/// x[i] ← exp(x[i] − max) / Σ_j exp(x[j] − max), in place, n ≥ 1. Summed upwards.
inline void softmax(float* x, std::size_t n) noexcept {
    const float largest = *std::max_element(x, x + n);
    float sum = 0.0f;
    for (std::size_t i = 0; i < n; ++i) {
        x[i] = std::exp(x[i] - largest);
        sum += x[i];
    }
    for (std::size_t i = 0; i < n; ++i) x[i] /= sum;
}

/// y[i] += factor · x[i], of length n.
inline void add_scaled(float factor, const float* x, float* y, std::size_t n) noexcept {
    for (std::size_t i = 0; i < n; ++i) y[i] += factor * x[i];
}

/// RoPE (Su et al. 2021): turns each pair (x[2i], x[2i+1]) of one head by the angle
/// position · theta^(−2i / head_size). `turn` (head_size / 2, 2) holds the cosine and sine of the
/// position's angles.
inline void rotate(float* head, const float* turn, std::size_t head_size) noexcept {
    for (std::size_t i = 0; i < head_size; i += 2) {
        const float a = head[i];
        const float b = head[i + 1];
        head[i] = a * turn[i] - b * turn[i + 1];
        head[i + 1] = a * turn[i + 1] + b * turn[i];
    }
}

/// Attention of one query head at one position over n ≥ 1 earlier positions, its own included:
///
///     score[j] = q · k[j] / √head_size        q and each k[j], v[j] of length head_size
///     weight   = softmax(score)               scores (n) is scratch
///     out      = Σ_j weight[j] · v[j]         summed over positions upwards
///
/// `keys[j]` and `values[j]` point at whole KV rows; this head's part starts at `offset`. Pointers,
/// so that it does not matter whether rows lie side by side or scattered over pages.
inline void attend(const float* q, const float* const* keys, const float* const* values,
                   std::size_t offset, std::size_t n, std::size_t head_size, float* scores,
                   float* out) noexcept {
    const float scale = 1.0f / std::sqrt(static_cast<float>(head_size));
    for (std::size_t j = 0; j < n; ++j) scores[j] = dot(q, keys[j] + offset, head_size) * scale;
    softmax(scores, n);
    std::fill(out, out + head_size, 0.0f);
    for (std::size_t j = 0; j < n; ++j) add_scaled(scores[j], values[j] + offset, out, head_size);
}

}  // namespace kvstem
