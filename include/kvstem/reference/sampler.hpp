// SPDX-License-Identifier: MIT
// From logits to the next token: the likeliest one, or a seeded draw.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "../config.hpp"
#include "../errors.hpp"
#include "../token.hpp"
#include "random.hpp"

namespace kvstem::inline KVSTEM_ABI::reference {

/// How one request wants its tokens drawn. The default is greedy.
struct SamplingParams {
    float temperature = 0.0f;  // 0: always the likeliest token; else logits are divided by it
    std::size_t top_k = 0;     // keep the k likeliest tokens; 0 keeps all
    float top_p = 1.0f;        // keep the fewest likeliest tokens of at least this probability
    std::uint64_t seed = 0;    // same seed, same logits: same tokens
};

/// Throws: InvalidArgument naming the value that is out of range. top_k may exceed the vocabulary.
inline void validate(const SamplingParams& params) {
    if (!(params.temperature >= 0.0f) || !std::isfinite(params.temperature)) {
        kvstem::detail::fail<InvalidArgument>("sampling: temperature is %g, must be 0 or more",
                                              static_cast<double>(params.temperature));
    }
    if (!(params.top_p > 0.0f && params.top_p <= 1.0f)) {
        kvstem::detail::fail<InvalidArgument>("sampling: top_p is %g, must be in (0, 1]",
                                              static_cast<double>(params.top_p));
    }
}

/// Draws the tokens of one request.
///
/// With a temperature T: p[i] = exp(logit[i] / T) / Σ_kept exp(logit[j] / T), where kept are the
/// top_k likeliest, and of these the fewest that together reach top_p.
///
/// Each request has a sampler of its own, and with it its own random state: what a request draws
/// does not depend on which others are running. Tokens of equal logits are ordered by id, lower
/// first, wherever order matters. A logit of −∞ excludes its token.
/// Complexity: greedy O(vocabulary); otherwise O(vocabulary · log vocabulary), in scratch that is
/// kept from call to call.
/// Exceptions: InvalidArgument for parameters out of range, for no logits, for a logit that is NaN
/// or +∞, for logits that are all −∞; the random state has not advanced then.
/// Copying: a copy draws on from the same random state, so a fork can be replayed.
///
///     reference::Sampler sampler({.temperature = 0.8f, .top_p = 0.9f, .seed = 7});
class Sampler {
  public:
    explicit Sampler(const SamplingParams& params) : params_(params), random_(params.seed) {
        validate(params_);
    }

    [[nodiscard]] const SamplingParams& params() const noexcept { return params_; }

    /// The next token after a row of logits (vocab_size). Greedy draws use no randomness.
    Token sample(std::span<const float> logits) {
        const std::size_t likeliest = check(logits);
        if (params_.temperature == 0.0f) return static_cast<Token>(likeliest);
        keep_top_k(logits);
        weigh(logits, logits[likeliest]);
        keep_top_p();
        return draw();
    }

  private:
    /// Refuses what no token can be drawn from; returns the first of the largest logits.
    static std::size_t check(std::span<const float> logits) {
        using kvstem::detail::fail;
        std::size_t best = 0;
        for (std::size_t i = 0; i < logits.size(); ++i) {
            if (std::isnan(logits[i]) || logits[i] == std::numeric_limits<float>::infinity()) {
                fail<InvalidArgument>("sampling: logit %zu is %g", i,
                                      static_cast<double>(logits[i]));
            }
            if (logits[i] > logits[best]) best = i;
        }
        if (logits.empty() || std::isinf(logits[best])) {
            fail<InvalidArgument>("sampling: none of %zu tokens has a finite logit", logits.size());
        }
        return best;
    }

    /// candidates_ = tokens by falling logit, at most top_k of them.
    void keep_top_k(std::span<const float> logits) {
        candidates_.resize(logits.size());
        std::iota(candidates_.begin(), candidates_.end(), Token{0});
        std::sort(candidates_.begin(), candidates_.end(), [&](Token a, Token b) {
            const float x = logits[static_cast<std::size_t>(a)];
            const float y = logits[static_cast<std::size_t>(b)];
            return x > y || (x == y && a < b);
        });
        if (params_.top_k > 0 && params_.top_k < candidates_.size()) {
            candidates_.resize(params_.top_k);
        }
    }

    /// weights_[i] = exp((logit − largest) / temperature), total_ = Σ weights_. The first is 1, so
    /// the total is never 0; in double, where a vocabulary of small weights still adds up.
    void weigh(std::span<const float> logits, float largest) {
        weights_.clear();
        total_ = 0.0;
        for (const Token token : candidates_) {
            const double below = static_cast<double>(logits[static_cast<std::size_t>(token)]) -
                                 static_cast<double>(largest);
            weights_.push_back(std::exp(below / static_cast<double>(params_.temperature)));
            total_ += weights_.back();
        }
    }

    /// Cuts the candidates after the first whose cumulated share reaches top_p.
    void keep_top_p() {
        if (params_.top_p == 1.0f) return;
        const double wanted = total_ * static_cast<double>(params_.top_p);
        double sum = 0.0;
        std::size_t kept = 0;
        while (kept < weights_.size() && sum < wanted) sum += weights_[kept++];
        weights_.resize(kept);
        total_ = sum;
    }

    /// The first candidate whose cumulated weight exceeds u · total, u uniform in [0, 1). Rounding
    /// may leave the last sum a hair short of the total; the last candidate of any weight then
    /// stands for it, never one that was excluded.
    Token draw() {
        const double target = random_.unit() * total_;
        double sum = 0.0;
        std::size_t chosen = 0;
        for (std::size_t i = 0; i < weights_.size() && sum <= target; ++i) {
            sum += weights_[i];
            if (weights_[i] > 0.0) chosen = i;
        }
        return candidates_[chosen];
    }

    SamplingParams params_;
    SplitMix64 random_;

    // Scratch of one draw.
    std::vector<Token> candidates_;  // by falling logit
    std::vector<double> weights_;    // of the candidates that are kept
    double total_ = 0.0;
};

}  // namespace kvstem
