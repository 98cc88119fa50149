// SPDX-License-Identifier: MIT
// Models trained elsewhere: the checkpoint format of llama2.c.
//
// A file is seven int32, then float32 tensors, all little endian, nothing else:
//
//     dim, hidden_dim, n_layers, n_heads, n_kv_heads, ±vocab_size, max_context
//     token_embedding (vocab, dim)
//     attention_norm  (layer, dim)
//     wq (layer, dim, dim)   wk, wv (layer, row, dim)   wo (layer, dim, dim)
//     feed_forward_norm (layer, dim)
//     w1 (layer, hidden, dim)   w2 (layer, dim, hidden)   w3 (layer, hidden, dim)
//     final_norm (dim)
//     two RoPE tables (max_context, head_size / 2), which readers skip
//     classifier (vocab, dim), only if vocab_size is negative
//
// with head_size = dim / n_heads and row = n_kv_heads · head_size. The length of the file follows
// from its header, so a damaged header is found by comparing the two before any tensor is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "../config.hpp"
#include "../errors.hpp"
#include "file_bytes.hpp"
#include "model.hpp"

namespace kvstem::inline KVSTEM_ABI::reference {

namespace detail {

/// One header field that must lie in 1 … most. The limits are those of `validate`.
inline std::size_t header_field(ByteCursor& cursor, const char* name, std::int64_t most) {
    const std::int64_t value = cursor.int32(name);
    if (value < 1 || value > most) {
        kvstem::detail::fail<BadFormat>("checkpoint: %s is %lld, must be 1 … %lld", name,
                                        static_cast<long long>(value),
                                        static_cast<long long>(most));
    }
    return static_cast<std::size_t>(value);
}

inline void vocabulary_field(ByteCursor& cursor, ModelConfig& config) {
    // Widened before the sign is dropped: −2^31 has no positive counterpart in 32 bits.
    const std::int64_t value = cursor.int32("vocab_size");
    const std::int64_t size = value < 0 ? -value : value;
    if (size < 1 || size > 1 << 24) {
        kvstem::detail::fail<BadFormat>("checkpoint: vocab_size is %lld, must be ±1 … ±%d",
                                        static_cast<long long>(value), 1 << 24);
    }
    config.vocab_size = static_cast<std::size_t>(size);
    config.classifier = value < 0 ? Classifier::separate : Classifier::tied;
}

inline ModelConfig read_checkpoint_header(ByteCursor& cursor) {
    using kvstem::detail::fail;
    ModelConfig config;
    config.dim = header_field(cursor, "dim", 1 << 20);
    config.hidden_dim = header_field(cursor, "hidden_dim", 1 << 20);
    config.n_layers = header_field(cursor, "n_layers", 1 << 10);
    config.n_heads = header_field(cursor, "n_heads", 1 << 10);
    config.n_kv_heads = header_field(cursor, "n_kv_heads", 1 << 10);
    vocabulary_field(cursor, config);
    config.max_context = header_field(cursor, "max_context", 1 << 24);
    if (config.dim % config.n_heads != 0) {
        fail<BadFormat>("checkpoint: dim %zu is not a multiple of n_heads %zu", config.dim,
                        config.n_heads);
    }
    if (config.n_heads % config.n_kv_heads != 0) {
        fail<BadFormat>("checkpoint: n_heads %zu is not a multiple of n_kv_heads %zu",
                        config.n_heads, config.n_kv_heads);
    }
    config.head_size = config.dim / config.n_heads;
    if (config.head_size % 2 != 0 || config.head_size > 1 << 10) {
        fail<BadFormat>("checkpoint: head size %zu (dim %zu / n_heads %zu) is odd or too large",
                        config.head_size, config.dim, config.n_heads);
    }
    return config;
}

/// Floats after the header. The header's limits keep every product below 2^61.
inline std::uint64_t checkpoint_floats(const ModelConfig& c) noexcept {
    const std::uint64_t dim = c.dim;
    const std::uint64_t attention = 2 * dim * dim + 2 * dim * c.row_size();
    const std::uint64_t layer = 2 * dim + attention + 3 * dim * c.hidden_dim;
    const std::uint64_t table = std::uint64_t{c.vocab_size} * dim;
    const std::uint64_t classifier = c.classifier == Classifier::separate ? table : 0;
    const std::uint64_t rope = std::uint64_t{c.max_context} * c.head_size;
    return table + c.n_layers * layer + dim + rope + classifier;
}

}  // namespace detail

/// A model from the bytes of a llama2.c checkpoint.
/// Throws: BadFormat naming the value that is wrong. Allocates nothing before header and length
/// agree, so a damaged file costs no more memory than it has bytes.
[[nodiscard]] inline Model parse_checkpoint(std::span<const std::byte> bytes) {
    ByteCursor cursor(bytes, "checkpoint");
    ModelConfig config = detail::read_checkpoint_header(cursor);
    const std::uint64_t expected = detail::checkpoint_floats(config);
    if (cursor.left() % 4 != 0 || cursor.left() / 4 != expected) {
        kvstem::detail::fail<BadFormat>(
            "checkpoint: %zu bytes after the header, which asks for %llu floats", cursor.left(),
            static_cast<unsigned long long>(expected));
    }
    const std::size_t dim = config.dim;
    Weights weights;
    weights.layers.resize(config.n_layers);
    // In the file the layers of one tensor follow each other, then come those of the next tensor.
    const auto per_layer = [&](const char* name, auto&& tensor_of, std::size_t count) {
        for (LayerWeights& layer : weights.layers) tensor_of(layer) = cursor.floats(name, count);
    };
    using Layer = LayerWeights;
    weights.token_embedding = cursor.floats("token_embedding", config.vocab_size * dim);
    per_layer("attention_norm", [](Layer& l) -> Tensor& { return l.attention_norm; }, dim);
    per_layer("wq", [](Layer& l) -> Tensor& { return l.wq; }, dim* dim);
    per_layer("wk", [](Layer& l) -> Tensor& { return l.wk; }, config.row_size() * dim);
    per_layer("wv", [](Layer& l) -> Tensor& { return l.wv; }, config.row_size() * dim);
    per_layer("wo", [](Layer& l) -> Tensor& { return l.wo; }, dim* dim);
    per_layer("feed_forward_norm", [](Layer& l) -> Tensor& { return l.feed_forward_norm; }, dim);
    per_layer("w1", [](Layer& l) -> Tensor& { return l.dense.w1; }, config.hidden_dim* dim);
    per_layer("w2", [](Layer& l) -> Tensor& { return l.dense.w2; }, config.hidden_dim* dim);
    per_layer("w3", [](Layer& l) -> Tensor& { return l.dense.w3; }, config.hidden_dim* dim);
    weights.final_norm = cursor.floats("final_norm", dim);
    cursor.skip("rope tables", config.max_context * config.head_size * 4);
    if (config.classifier == Classifier::separate) {
        weights.classifier = cursor.floats("classifier", config.vocab_size * dim);
    }
    return Model(std::move(config), std::move(weights));
}

/// A model from a llama2.c checkpoint file.
/// Throws: InvalidArgument if the file cannot be read, BadFormat if it is not a checkpoint.
[[nodiscard]] inline Model load_checkpoint(const std::string& path) {
    return parse_checkpoint(read_file(path));
}

}  // namespace kvstem
