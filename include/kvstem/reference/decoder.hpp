// SPDX-License-Identifier: MIT
// The transformer itself: tokens in, logits out, KV rows appended on the way.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "../config.hpp"
#include "../errors.hpp"
#include "../token.hpp"
#include "feed_forward.hpp"
#include "kernels.hpp"
#include "kv.hpp"
#include "logits.hpp"
#include "model.hpp"

namespace kvstem::inline KVSTEM_ABI::reference {

/// Which rows of logits a step returns. The classifier is the largest matrix of a small model, and
/// a prefill needs only what follows its last token.
enum class LogitsFor { every_token, last_token };

/// Some consecutive tokens of one sequence: a prompt, a chunk of one, a drafted continuation.
template <kv_view View>
struct BatchRun {
    std::span<const Token> tokens;
    std::size_t position = 0;  // of tokens[0]; must be kv->length()
    View* kv = nullptr;        // receives their rows
};

/// One token of one sequence: what a decoding step computes per running request.
template <kv_view View>
struct BatchRow {
    Token token = 0;
    std::size_t position = 0;  // must be kv->length()
    View* kv = nullptr;        // receives its row
};

/// A CPU decoder for one model, written to be read. For each token of a step, x being (dim):
///
///     x = E[token]
///     per layer:  h  = rms_norm(x)
///                 q  = rope(norm?(Wq·h), p)   k = rope(norm?(Wk·h), p)   v = Wv·h
///                 append k, v to the KV at position p
///                 x += Wo · attention(q, K[first(p) … p], V[first(p) … p])
///                 x += feed_forward(rms_norm(x))
///     logits = C · rms_norm(x)
///
/// Choose it when: an answer must be explained or checked. It is a yardstick and not an engine: one
/// thread, no quantisation, plain loops.
/// States of a step: refused (nothing has changed), or computing (rows lie in slots that do not
/// count yet), then committed; there is no other way for a KV to grow.
/// Invariant (X1): logits and KV rows of a token depend on the tokens before it and on nothing
/// else, bit for bit: not on the chunking, not on the other runs of the step, not on the kind of
/// KV. All arithmetic is in functions that never see a KV type (kernels.hpp, feed_forward.hpp);
/// the templates below only move rows. See kernels.hpp for the compiler flags this rests on.
/// Complexity: a step of n tokens costs n times the model's weights in multiplications, and per
/// layer n times the attended positions.
/// Exceptions: InvalidArgument for a token outside the vocabulary, a position that is not the KV's
/// length or lies beyond the context, a KV of another shape, a KV given twice. Whenever a step
/// throws, every KV has its former length and rows.
/// Threads: one at a time per decoder; a model may be shared by many decoders.
///
///     reference::Decoder decoder(reference::Model::from_seed(reference::presets::demo(), 42));
///     reference::ContiguousKv kv(decoder.config().kv_shape());
///     auto logits = decoder.forward_batch(prompt, 0, kv, reference::LogitsFor::last_token);
///     Token next = sampler.sample(logits.last());
///     logits = decoder.forward_batch({&next, 1}, kv.length(), kv);
class Decoder {
  public:
    explicit Decoder(Model model) : Decoder(std::make_shared<const Model>(std::move(model))) {}

    /// Throws: InvalidArgument if there is no model.
    explicit Decoder(std::shared_ptr<const Model> model) : model_(std::move(model)) {
        if (!model_) kvstem::detail::fail<InvalidArgument>("decoder: no model");
        // In float, as models of this family are trained and run; theta^(−2i / head_size).
        const auto size = static_cast<float>(config().head_size);
        for (std::size_t i = 0; i < config().head_size; i += 2) {
            frequencies_.push_back(1.0f /
                                   std::pow(config().rope_theta, static_cast<float>(i) / size));
        }
    }

    [[nodiscard]] const Model& model() const noexcept { return *model_; }
    [[nodiscard]] const ModelConfig& config() const noexcept { return model_->config(); }

    /// How many tokens went through the layers so far, over all sequences: an engine's proof of
    /// what it did not have to compute. Refused steps do not count.
    [[nodiscard]] std::uint64_t tokens_computed() const noexcept { return tokens_computed_; }

    /// Computes the tokens of one sequence from `start_position`, which must be the KV's length,
    /// and appends their rows. Once on n tokens or n times on one gives the same bits.
    template <kv_view View>
    Logits forward_batch(std::span<const Token> tokens, std::size_t start_position, View& kv,
                         LogitsFor wanted = LogitsFor::every_token) {
        const BatchRun<View> run{tokens, start_position, &kv};
        return forward_runs(std::span<const BatchRun<View>>(&run, 1), wanted);
    }

    /// Computes one token each of several sequences in one step; row i of the logits is rows[i]'s.
    template <kv_view View>
    Logits forward_rows(std::span<const BatchRow<View>> rows) {
        std::vector<BatchRun<View>> runs(rows.size());
        for (std::size_t i = 0; i < rows.size(); ++i) {
            runs[i] = {std::span<const Token>(&rows[i].token, 1), rows[i].position, rows[i].kv};
        }
        return forward_runs(std::span<const BatchRun<View>>(runs), LogitsFor::every_token);
    }

    /// Computes runs of any length of several sequences in one step: chunks of prefills beside
    /// decoding rows. Logits come in the order of the runs, one row per token or one per run.
    template <kv_view View>
    Logits forward_runs(std::span<const BatchRun<View>> runs, LogitsFor wanted) {
        // All that can be refused is refused here. Until the commits at the end the new rows lie in
        // slots, which do not count; whatever throws in between leaves every KV at its length.
        check_distinct(runs);
        for (const BatchRun<View>& run : runs) check(run);
        for (const BatchRun<View>& run : runs) run.kv->reserve(run.tokens.size());

        start(runs, wanted);
        for (std::size_t layer = 0; layer < config().n_layers; ++layer) {
            project(layer);
            store_rows(layer, runs);
            attend_runs(layer, runs);
            finish(layer);
        }
        Logits logits = classify();
        for (const BatchRun<View>& run : runs) run.kv->commit(run.tokens.size());
        tokens_computed_ += n_;
        return logits;
    }

  private:
    // ── What may be refused, before anything changes ──

    /// Two runs on one KV would both begin at its length, and write the same slots. Only the same
    /// object is recognised; two views of one lease are the caller's mistake to avoid.
    template <kv_view View>
    static void check_distinct(std::span<const BatchRun<View>> runs) {
        if (runs.empty()) kvstem::detail::fail<InvalidArgument>("decoder: a step without tokens");
        std::vector<const View*> views;
        for (const BatchRun<View>& run : runs) views.push_back(run.kv);
        std::sort(views.begin(), views.end());
        if (views.front() == nullptr) {
            kvstem::detail::fail<InvalidArgument>("decoder: a run without a KV");
        }
        if (std::adjacent_find(views.begin(), views.end()) != views.end()) {
            kvstem::detail::fail<InvalidArgument>(
                "decoder: one KV is in two of the step's %zu runs", runs.size());
        }
    }

    /// The cursor check: start position and rows held are one number, in every layer by the KV's
    /// own invariant. A prefill that starts elsewhere than at the adopted rows is stopped here.
    template <kv_view View>
    void check(const BatchRun<View>& run) const {
        using kvstem::detail::fail;
        const KvShape expected = config().kv_shape();
        const KvShape shape = run.kv->shape();
        if (shape != expected) {
            fail<InvalidArgument>(
                "decoder: KV of %zu layers of %zu floats, the model has %zu of %zu", shape.n_layers,
                shape.row_size, expected.n_layers, expected.row_size);
        }
        if (run.tokens.empty()) {
            fail<InvalidArgument>("decoder: no tokens to compute at position %zu", run.position);
        }
        if (run.position != run.kv->length()) {
            fail<InvalidArgument>("decoder: start position %zu, but the KV holds %zu positions",
                                  run.position, run.kv->length());
        }
        if (run.position > config().max_context ||
            run.tokens.size() > config().max_context - run.position) {
            fail<InvalidArgument>("decoder: %zu tokens from position %zu exceed the context of %zu",
                                  run.tokens.size(), run.position, config().max_context);
        }
        for (const Token token : run.tokens) {
            if (token < 0 || static_cast<std::size_t>(token) >= config().vocab_size) {
                fail<InvalidArgument>("decoder: token %d is outside the vocabulary of %zu",
                                      static_cast<int>(token), config().vocab_size);
            }
        }
    }

    // ── One step; n_ is the number of its tokens over all runs ──

    /// Sizes the buffers, embeds the tokens, x[t] = E[token t], and prepares the angles of their
    /// positions, which are the same in every layer.
    template <kv_view View>
    void start(std::span<const BatchRun<View>> runs, LogitsFor wanted) {
        n_ = 0;
        for (const BatchRun<View>& run : runs) n_ += run.tokens.size();
        resize_buffers();
        wanted_.clear();
        std::size_t t = 0;
        for (const BatchRun<View>& run : runs) {
            for (std::size_t i = 0; i < run.tokens.size(); ++i, ++t) {
                embed(t, run.tokens[i], run.position + i);
                const bool last_of_run = i + 1 == run.tokens.size();
                if (wanted == LogitsFor::every_token || last_of_run) wanted_.push_back(t);
            }
        }
    }

    /// Buffers keep their capacity from step to step, so decoding does not allocate here.
    void resize_buffers() {
        x_.resize(n_ * config().dim);
        h_.resize(n_ * config().dim);
        delta_.resize(n_ * config().dim);
        q_.resize(n_ * config().query_size());
        attended_.resize(n_ * config().query_size());
        k_.resize(n_ * config().row_size());
        v_.resize(n_ * config().row_size());
        turns_.resize(n_ * config().head_size);
    }

    /// x[t] = E[token], and turns[t][i] = (cos, sin)(position · theta^(−2i / head_size)).
    void embed(std::size_t t, Token token, std::size_t position) {
        const std::size_t dim = config().dim;
        const float* row =
            model_->weights().token_embedding.data() + static_cast<std::size_t>(token) * dim;
        std::copy_n(row, dim, x_.data() + t * dim);
        float* turn = turns_.data() + t * config().head_size;
        for (std::size_t i = 0; i < frequencies_.size(); ++i) {
            const float angle = static_cast<float>(position) * frequencies_[i];
            turn[2 * i] = std::cos(angle);
            turn[2 * i + 1] = std::sin(angle);
        }
    }

    /// h = rms_norm(x); q = Wq·h, k = Wk·h, v = Wv·h; q and k normalised per head if the model
    /// does so, then rotated by their positions.
    void project(std::size_t layer) {
        const ModelConfig& c = config();
        const LayerWeights& w = model_->weights().layers[layer];
        normalise(w.attention_norm);
        matmul(h_.data(), w.wq.data(), q_.data(), n_, c.dim, c.query_size());
        matmul(h_.data(), w.wk.data(), k_.data(), n_, c.dim, c.row_size());
        matmul(h_.data(), w.wv.data(), v_.data(), n_, c.dim, c.row_size());
        for (std::size_t t = 0; t < n_; ++t) {
            const float* turn = turns_.data() + t * c.head_size;
            place_heads(q_.data() + t * c.query_size(), c.n_heads, w.query_norm, turn);
            place_heads(k_.data() + t * c.row_size(), c.n_kv_heads, w.key_norm, turn);
        }
    }

    /// heads (n_heads, head_size): each normalised with `norm` (head_size) unless that is empty,
    /// then rotated.
    void place_heads(float* heads, std::size_t n_heads, const Tensor& norm, const float* turn) {
        const std::size_t size = config().head_size;
        for (std::size_t head = 0; head < n_heads; ++head, heads += size) {
            if (config().query_key_norm == QueryKeyNorm::per_head) {
                rms_norm(heads, norm.data(), config().norm_eps, heads, size);
            }
            rotate(heads, turn, size);
        }
    }

    /// h[t] = rms_norm(x[t]) for all tokens.
    void normalise(const Tensor& weight) {
        const std::size_t dim = config().dim;
        for (std::size_t t = 0; t < n_; ++t) {
            rms_norm(x_.data() + t * dim, weight.data(), config().norm_eps, h_.data() + t * dim,
                     dim);
        }
    }

    /// Puts the step's k and v rows into the KVs' slots, where attention will look for them: a
    /// token of a chunk reads the chunk's earlier rows from the KV like all others.
    template <kv_view View>
    void store_rows(std::size_t layer, std::span<const BatchRun<View>> runs) {
        const std::size_t size = config().row_size();
        std::size_t t = 0;
        for (const BatchRun<View>& run : runs) {
            for (std::size_t i = 0; i < run.tokens.size(); ++i, ++t) {
                const std::size_t position = run.position + i;
                std::copy_n(k_.data() + t * size, size, run.kv->key_slot(layer, position).data());
                std::copy_n(v_.data() + t * size, size, run.kv->value_slot(layer, position).data());
            }
        }
    }

    /// For each run: where its rows lie, from the oldest its first token reads to its last; then
    /// each token attends to its part of them, first_attended(p) … p. Rows behind a layer's window
    /// are not even looked up, so their pages may be gone. The causal mask is the range itself:
    ///
    ///     begin ─────── first(p) ═══════════ p ─────── last of the run
    ///                   │  n rows, attended  │
    template <kv_view View>
    void attend_runs(std::size_t layer, std::span<const BatchRun<View>> runs) {
        std::size_t t = 0;
        for (const BatchRun<View>& run : runs) {
            const std::size_t begin = config().first_attended(layer, run.position);
            gather(layer, begin, run.position + run.tokens.size(), *run.kv);
            for (std::size_t i = 0; i < run.tokens.size(); ++i, ++t) {
                const std::size_t position = run.position + i;
                const std::size_t first = config().first_attended(layer, position);
                attend_heads(t, first - begin, position + 1 - first);
            }
        }
    }

    /// keys_[j], values_[j] = the rows at position begin + j, stored ones and this step's.
    template <kv_view View>
    void gather(std::size_t layer, std::size_t begin, std::size_t end, View& kv) {
        keys_.resize(end - begin);
        values_.resize(end - begin);
        scores_.resize(end - begin);
        for (std::size_t p = begin; p < end; ++p) {
            const bool stored = p < kv.length();
            keys_[p - begin] = stored ? kv.key(layer, p).data() : kv.key_slot(layer, p).data();
            values_[p - begin] =
                stored ? kv.value(layer, p).data() : kv.value_slot(layer, p).data();
        }
    }

    /// attended[t][head] = attention of q[t][head] over n gathered rows from `from` on. Query
    /// heads share key/value heads in groups: head h reads head h / (n_heads / n_kv_heads).
    void attend_heads(std::size_t t, std::size_t from, std::size_t n) {
        const ModelConfig& c = config();
        const std::size_t group = c.n_heads / c.n_kv_heads;
        for (std::size_t head = 0; head < c.n_heads; ++head) {
            const std::size_t at = t * c.query_size() + head * c.head_size;
            attend(q_.data() + at, keys_.data() + from, values_.data() + from,
                   head / group * c.head_size, n, c.head_size, scores_.data(),
                   attended_.data() + at);
        }
    }

    /// The two additions to the residual stream: x += Wo · attended, then
    /// x += feed_forward(rms_norm(x)). `delta_` holds each before it is added.
    void finish(std::size_t layer) {
        const ModelConfig& c = config();
        const LayerWeights& w = model_->weights().layers[layer];
        matmul(attended_.data(), w.wo.data(), delta_.data(), n_, c.query_size(), c.dim);
        add_scaled(1.0f, delta_.data(), x_.data(), n_ * c.dim);
        normalise(w.feed_forward_norm);
        feed_forward_.run(c, w, h_.data(), delta_.data(), n_);
        add_scaled(1.0f, delta_.data(), x_.data(), n_ * c.dim);
    }

    /// logits = C · rms_norm(x) for the rows that were asked for, (n_wanted, vocab_size). Those
    /// rows of h (n_wanted, dim) are packed to the front; h itself is done with.
    Logits classify() {
        const ModelConfig& c = config();
        for (std::size_t i = 0; i < wanted_.size(); ++i) {
            rms_norm(x_.data() + wanted_[i] * c.dim, model_->weights().final_norm.data(),
                     c.norm_eps, h_.data() + i * c.dim, c.dim);
        }
        Logits logits(wanted_.size(), c.vocab_size);
        matmul(h_.data(), model_->classifier().data(), logits.values().data(), wanted_.size(),
               c.dim, c.vocab_size);
        return logits;
    }

    std::shared_ptr<const Model> model_;
    std::vector<float> frequencies_;  // (head_size / 2)  theta^(−2i / head_size)
    std::uint64_t tokens_computed_ = 0;

    // Scratch of one step.
    std::size_t n_ = 0;
    std::vector<std::size_t> wanted_;  // tokens whose logits are returned
    std::vector<float> x_;             // (n, dim)         the residual stream
    std::vector<float> h_;             // (n, dim)         normalised x
    std::vector<float> delta_;         // (n, dim)         what a half-layer adds to x
    std::vector<float> q_;             // (n, query_size)
    std::vector<float> attended_;      // (n, query_size)
    std::vector<float> k_;             // (n, row_size)
    std::vector<float> v_;             // (n, row_size)
    std::vector<float> turns_;         // (n, head_size/2, 2)  cosine and sine per position
    std::vector<const float*> keys_;   // (attended positions) of one run in one layer
    std::vector<const float*> values_;
    std::vector<float> scores_;  // (attended positions) of one head
    FeedForward feed_forward_;
};

}  // namespace kvstem
