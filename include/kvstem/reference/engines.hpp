// SPDX-License-Identifier: MIT
// The decoder as an engine in each of the three forms that PrefixCachedEngine wraps.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "../config.hpp"
#include "../errors.hpp"
#include "../token.hpp"
#include "../window.hpp"
#include "decoder.hpp"
#include "kv.hpp"
#include "logits.hpp"
#include "model.hpp"
#include "model_config.hpp"
#include "paged_kv.hpp"

namespace kvstem::inline KVSTEM_ABI::reference {

/// What the three engines have in common. Nothing here knows of caches.
class EngineBase {
  public:
    [[nodiscard]] std::size_t vocab_size() const noexcept { return decoder_.config().vocab_size; }
    [[nodiscard]] std::size_t max_context() const noexcept { return decoder_.config().max_context; }
    /// The engine's own count, whatever a cache in front of it claims.
    [[nodiscard]] std::uint64_t tokens_computed() const noexcept {
        return decoder_.tokens_computed();
    }
    [[nodiscard]] const ModelConfig& config() const noexcept { return decoder_.config(); }

  protected:
    explicit EngineBase(std::shared_ptr<const Model> model) : decoder_(std::move(model)) {}

    template <kv_view View>
    std::span<const float> compute(std::span<const Token> tokens, std::size_t start, View& kv) {
        logits_ = decoder_.forward_batch(tokens, start, kv, LogitsFor::last_token);
        return logits_.last();
    }

    /// Bytes of one position: a key row and a value row in each layer.
    [[nodiscard]] std::size_t position_bytes() const noexcept {
        const KvShape shape = decoder_.config().kv_shape();
        return shape.n_layers * 2 * shape.row_size * sizeof(float);
    }

  private:
    Decoder decoder_;
    Logits logits_{0, 0};
};

/// Attends over pages in place: a paged_engine.
///
///     reference::PagedEngine engine(model, 64, 16);  // 64 page groups of 16 positions
///     kvstem::PrefixCachedEngine cached(engine);
class PagedEngine : public EngineBase {
  public:
    PagedEngine(std::shared_ptr<const Model> model, std::size_t capacity_pages,
                std::size_t page_tokens)
        : EngineBase(std::move(model)), store_(config().kv_shape(), capacity_pages, page_tokens) {}

    [[nodiscard]] std::size_t page_tokens() const noexcept { return store_.page_tokens(); }
    [[nodiscard]] std::size_t capacity_pages() const noexcept { return store_.capacity_pages(); }
    [[nodiscard]] std::size_t page_bytes() const noexcept {
        return page_tokens() * position_bytes();
    }
    [[nodiscard]] std::size_t sliding_window() const noexcept { return config().sliding_window(); }

    std::span<const float> forward(std::span<const Token> tokens, std::size_t start,
                                   std::span<const PageId> block_table) {
        PagedKvView kv(store_, block_table, start);
        return compute(tokens, start, kv);
    }
    void copy_rows(PageId from, PageId to, std::size_t rows) { store_.copy_rows(from, to, rows); }

  private:
    PagedKvStore store_;
};

/// Owns one contiguous KV whose rows can be read and written: a row_engine. A position's bytes are
/// its key row and its value row of layer 0, then of layer 1, and so on.
///
///     reference::RowEngine engine(model);
///     kvstem::PrefixCachedEngine cached(engine, {.block_tokens = 16, .max_blocks = 1000});
class RowEngine : public EngineBase {
  public:
    explicit RowEngine(std::shared_ptr<const Model> model)
        : EngineBase(std::move(model)), kv_(config().kv_shape()) {}

    [[nodiscard]] std::size_t row_bytes() const noexcept { return position_bytes(); }
    [[nodiscard]] const ContiguousKv& kv() const noexcept { return kv_; }

    std::span<const float> forward(std::span<const Token> tokens, std::size_t start) {
        kv_.truncate(start);
        return compute(tokens, start, kv_);
    }

    std::size_t read_rows(std::size_t begin, std::size_t end, std::span<std::byte> out) const {
        const std::size_t needed = (end - begin) * row_bytes();
        if (out.size() != needed) return needed;
        std::byte* to = out.data();
        const auto copy = [&to](std::span<const float> row) {
            std::memcpy(to, row.data(), row.size_bytes());
            to += row.size_bytes();
        };
        for (std::size_t position = begin; position < end; ++position) {
            for (std::size_t layer = 0; layer < config().n_layers; ++layer) {
                copy(kv_.key(layer, position));
                copy(kv_.value(layer, position));
            }
        }
        return needed;
    }

    /// Throws: InvalidArgument if the bytes are not those of so many rows, or rows are missing
    /// before `begin`.
    void write_rows(std::size_t begin, std::size_t end, std::span<const std::byte> in) {
        if (end < begin || in.size() != (end - begin) * row_bytes()) {
            kvstem::detail::fail<InvalidArgument>(
                "row engine: %zu bytes for positions %zu up to %zu of %zu bytes each", in.size(),
                begin, end, row_bytes());
        }
        kv_.truncate(begin);
        kv_.reserve(end - begin);
        const std::byte* from = in.data();
        const auto copy = [&from](std::span<float> row) {
            std::memcpy(row.data(), from, row.size_bytes());
            from += row.size_bytes();
        };
        for (std::size_t position = begin; position < end; ++position) {
            for (std::size_t layer = 0; layer < config().n_layers; ++layer) {
                copy(kv_.key_slot(layer, position));
                copy(kv_.value_slot(layer, position));
            }
        }
        kv_.commit(end - begin);
    }

  private:
    ContiguousKv kv_;
};

/// Owns one KV that can only be saved, loaded and cut: a state_engine, in the manner of llama.cpp.
/// If all layers of the model slide by one window, a saved state holds only what the window still
/// reads, and a cut that would need more is refused.
///
///     reference::StateEngine engine(model);
///     kvstem::PrefixCachedEngine cached(engine, {.max_snapshots = 100});
class StateEngine : public EngineBase {
  public:
    /// The rows of the positions [first_kept, length); a position's rows are layer after layer.
    struct State {
        std::vector<float> keys;    // (length − first_kept, n_layers, row_size)
        std::vector<float> values;  // likewise
        std::size_t first_kept = 0;
        std::size_t length = 0;
        std::size_t window = 0;

        [[nodiscard]] std::size_t bytes() const noexcept {
            return (keys.size() + values.size()) * sizeof(float);
        }
        [[nodiscard]] std::size_t longest_cut(std::size_t n) const noexcept {
            return longest_window_cut(first_kept, length, n, window);
        }
    };

    explicit StateEngine(std::shared_ptr<const Model> model)
        : EngineBase(std::move(model)), kv_(config().kv_shape()) {}

    [[nodiscard]] std::size_t length() const noexcept { return kv_.length(); }

    std::span<const float> forward(std::span<const Token> tokens, std::size_t start) {
        if (start == 0) {
            kv_.truncate(0);
            first_kept_ = 0;
        }
        return compute(tokens, start, kv_);  // which refuses any other start than the length
    }

    [[nodiscard]] State save_state() const {
        const std::size_t window = config().sliding_window();
        State state;
        state.length = kv_.length();
        state.window = window;
        state.first_kept = std::max(first_kept_, first_position_in_window(state.length, window));
        for (std::size_t position = state.first_kept; position < state.length; ++position) {
            for (std::size_t layer = 0; layer < config().n_layers; ++layer) {
                const std::span<const float> key = kv_.key(layer, position);
                const std::span<const float> value = kv_.value(layer, position);
                state.keys.insert(state.keys.end(), key.begin(), key.end());
                state.values.insert(state.values.end(), value.begin(), value.end());
            }
        }
        return state;
    }

    /// Rows that the state has not are made of NaN: reading one would show in every logit.
    /// Throws: InvalidArgument for a state of another shape.
    void load_state(const State& state) {
        const std::size_t size = config().n_layers * config().row_size();
        const std::size_t kept = state.length - std::min(state.first_kept, state.length);
        if (state.keys.size() != kept * size || state.values.size() != kept * size) {
            kvstem::detail::fail<InvalidArgument>(
                "state engine: a state of %zu positions with %zu floats of keys, %zu of values",
                kept, state.keys.size(), state.values.size());
        }
        const std::vector<float> gone(size, std::numeric_limits<float>::quiet_NaN());
        kv_.truncate(0);
        for (std::size_t position = 0; position < state.length; ++position) {
            if (position < state.first_kept) {
                kv_.push(gone, gone);
                continue;
            }
            const std::size_t at = (position - state.first_kept) * size;
            kv_.push(std::span(state.keys).subspan(at, size),
                     std::span(state.values).subspan(at, size));
        }
        first_kept_ = state.first_kept;
    }

    /// Forgets the positions from n on, or returns false where the window no longer reaches back.
    [[nodiscard]] bool cut(std::size_t n) {
        const std::size_t window = config().sliding_window();
        if (n > kv_.length() || first_position_in_window(n, window) < first_kept_) return false;
        kv_.truncate(n);
        return true;
    }

  private:
    ContiguousKv kv_;
    std::size_t first_kept_ = 0;  // rows before it are gone
};

}  // namespace kvstem
