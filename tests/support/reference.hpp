// SPDX-License-Identifier: MIT
// What tests of the reference decoder share: refusals, random tokens, paged sequences, file bytes.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kvstem/reference/decoder.hpp"
#include "kvstem/reference/kv.hpp"
#include "kvstem/reference/model.hpp"
#include "kvstem/reference/paged_kv.hpp"
#include "kvstem/token.hpp"

namespace support {

/// The message with which `call` is refused by an exception of type `Error`.
template <class Error, class Call>
std::string refusal(Call&& call) {
    try {
        call();
    } catch (const Error& error) {
        return error.what();
    }
    return "not refused";
}

/// n tokens of a vocabulary, the same for the same seed.
inline std::vector<kvstem::Token> some_tokens(std::size_t n, std::size_t vocab_size,
                                              std::uint64_t seed) {
    kvstem::reference::SplitMix64 random(seed);
    std::vector<kvstem::Token> tokens(n);
    for (kvstem::Token& token : tokens) {
        token = static_cast<kvstem::Token>(random.next() % vocab_size);
    }
    return tokens;
}

/// Cuts n into random chunks of 1 … most.
inline std::vector<std::size_t> some_chunks(std::size_t n, std::size_t most, std::uint64_t seed) {
    kvstem::reference::SplitMix64 random(seed);
    std::vector<std::size_t> chunks;
    while (n > 0) {
        chunks.push_back(std::min<std::size_t>(n, 1 + random.next() % most));
        n -= chunks.back();
    }
    return chunks;
}

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
    return a.size() == b.size() &&
           (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

/// The rows of any view, position by position, as a contiguous KV: two kinds become comparable.
/// Rows that `keep(layer, position)` denies are replaced by `otherwise`.
template <kvstem::reference::kv_rows View, class Keep>
kvstem::reference::ContiguousKv copy_rows_where(const View& view, float otherwise, Keep&& keep) {
    const kvstem::reference::KvShape shape = view.shape();
    kvstem::reference::ContiguousKv copy(shape);
    for (std::size_t position = 0; position < view.length(); ++position) {
        std::vector<float> keys(shape.n_layers * shape.row_size, otherwise);
        std::vector<float> values = keys;
        for (std::size_t layer = 0; layer < shape.n_layers; ++layer) {
            if (!keep(layer, position)) continue;
            const auto at = static_cast<std::ptrdiff_t>(layer * shape.row_size);
            std::ranges::copy(view.key(layer, position), keys.begin() + at);
            std::ranges::copy(view.value(layer, position), values.begin() + at);
        }
        copy.push(keys, values);
    }
    return copy;
}

template <kvstem::reference::kv_rows View>
kvstem::reference::ContiguousKv copy_rows(const View& view) {
    return copy_rows_where(view, 0.0f, [](std::size_t, std::size_t) { return true; });
}

/// A store of its own with a block table that visits its pages in a scattered order.
struct PagedSequence {
    PagedSequence(kvstem::reference::KvShape shape, std::size_t positions, std::size_t page_tokens)
        : store(shape, (positions + page_tokens - 1) / page_tokens + 1, page_tokens) {
        for (std::size_t i = 0; i + 1 < store.capacity_pages(); ++i) {
            table.push_back(kvstem::PageId{static_cast<std::uint32_t>(i)});
        }
        std::shuffle(table.begin(), table.end(), std::mt19937(7));
    }

    kvstem::reference::PagedKvView view(std::size_t length = 0) { return {store, table, length}; }

    kvstem::reference::PagedKvStore store;
    std::vector<kvstem::PageId> table;
};

/// Little-endian bytes of a file in the making.
class Bytes {
  public:
    Bytes& add(std::uint32_t word) {
        for (int shift = 0; shift < 32; shift += 8) {
            data.push_back(static_cast<std::byte>(word >> shift & 0xFFu));
        }
        return *this;
    }
    Bytes& add(std::int32_t word) { return add(static_cast<std::uint32_t>(word)); }
    Bytes& add(float value) { return add(std::bit_cast<std::uint32_t>(value)); }
    Bytes& add(const std::string& text) {
        for (const char byte : text) data.push_back(static_cast<std::byte>(byte));
        return *this;
    }
    Bytes& add(const std::vector<float>& values) {
        for (const float value : values) add(value);
        return *this;
    }

    std::vector<std::byte> data;
};

/// A dense model as a llama2.c checkpoint, written from the format's description.
inline std::vector<std::byte> checkpoint_of(const kvstem::reference::Model& model) {
    const kvstem::reference::ModelConfig& c = model.config();
    const kvstem::reference::Weights& w = model.weights();
    const bool tied = c.classifier == kvstem::reference::Classifier::tied;
    Bytes file;
    for (const std::size_t field : {c.dim, c.hidden_dim, c.n_layers, c.n_heads, c.n_kv_heads}) {
        file.add(static_cast<std::int32_t>(field));
    }
    const auto vocab = static_cast<std::int32_t>(c.vocab_size);
    file.add(tied ? vocab : -vocab).add(static_cast<std::int32_t>(c.max_context));
    file.add(w.token_embedding);
    for (const auto& layer : w.layers) file.add(layer.attention_norm);
    for (const auto& layer : w.layers) file.add(layer.wq);
    for (const auto& layer : w.layers) file.add(layer.wk);
    for (const auto& layer : w.layers) file.add(layer.wv);
    for (const auto& layer : w.layers) file.add(layer.wo);
    for (const auto& layer : w.layers) file.add(layer.feed_forward_norm);
    for (const auto& layer : w.layers) file.add(layer.dense.w1);
    for (const auto& layer : w.layers) file.add(layer.dense.w2);
    for (const auto& layer : w.layers) file.add(layer.dense.w3);
    file.add(w.final_norm);
    // The tables are to be skipped, so they hold what would show.
    file.add(std::vector<float>(c.max_context * c.head_size, 1e30f));
    if (!tied) file.add(w.classifier);
    return std::move(file.data);
}

}  // namespace support
