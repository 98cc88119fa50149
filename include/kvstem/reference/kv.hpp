// SPDX-License-Identifier: MIT
// What the decoder needs of a KV, and the simplest KV that offers it: rows side by side.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "../config.hpp"
#include "../errors.hpp"
#include "model_config.hpp"

namespace kvstem::inline KVSTEM_ABI::reference {

/// Rows that can be read: for every layer and every position below `length()` one key row and one
/// value row of `shape().row_size` floats.
template <class View>
concept kv_rows = requires(const View& view, std::size_t layer, std::size_t position) {
    { view.shape() } -> std::same_as<KvShape>;
    { view.length() } noexcept -> std::same_as<std::size_t>;
    { view.key(layer, position) } -> std::same_as<std::span<const float>>;
    { view.value(layer, position) } -> std::same_as<std::span<const float>>;
};

/// Room for rows that are being computed. The decoder goes through the layers one by one, so the
/// rows of a step become complete only in its last layer; until then they must not count:
///
///     0 ─────────── length() ────────── length() + n
///     │ rows, read by key/value │ slots, from reserve(n) to commit(n) │
///
/// `reserve(n)` makes the slots (it may throw, nothing has changed then), `key_slot` and
/// `value_slot` give access to them, and `commit(n)` turns them into rows and cannot fail. A step
/// that ends between the two by an exception leaves the KV as it was.
template <class View>
concept kv_slots = requires(View& view, std::size_t layer, std::size_t position, std::size_t n) {
    view.reserve(n);
    { view.key_slot(layer, position) } -> std::same_as<std::span<float>>;
    { view.value_slot(layer, position) } -> std::same_as<std::span<float>>;
    { view.commit(n) } noexcept;
};

/// What the decoder computes over: it is written once against this and never learns where rows lie.
template <class View>
concept kv_view = kv_rows<View> && kv_slots<View>;

/// The KV of one sequence, contiguous per layer.
///
/// Choose it when: one sequence owns its KV, as in engines without pages; it is the KV that
/// snapshots of a PrefixCache hold. For shared pages see paged_kv.hpp.
/// Invariants: every layer has the same `length()` rows of keys and of values, by construction; a
/// moved-from KV has no layers and length 0.
/// Complexity: push and truncate touch the rows they add or drop; copies cost their bytes.
/// Invalidation: spans of rows are valid until the next non-const call.
/// Exceptions: InvalidArgument for a row of the wrong size, a layer or position that is not there;
/// every call leaves the KV as it was when it throws.
///
///     reference::ContiguousKv kv(model.config().kv_shape());
///     decoder.forward_batch(prompt, 0, kv);
class ContiguousKv {
  public:
    explicit ContiguousKv(KvShape shape)
        : keys_(shape.n_layers), values_(shape.n_layers), row_size_(shape.row_size) {
        if (shape.n_layers == 0 || shape.row_size == 0) {
            kvstem::detail::fail<InvalidArgument>("kv: a shape of %zu layers of %zu floats",
                                                  shape.n_layers, shape.row_size);
        }
    }

    ContiguousKv(const ContiguousKv&) = default;
    ContiguousKv& operator=(const ContiguousKv& other) {
        return *this = ContiguousKv(other);  // copied first, so that it is all or nothing
    }
    ContiguousKv(ContiguousKv&& other) noexcept
        : keys_(std::exchange(other.keys_, {})),
          values_(std::exchange(other.values_, {})),
          row_size_(other.row_size_),
          length_(std::exchange(other.length_, 0)),
          reserved_(std::exchange(other.reserved_, 0)) {}
    ContiguousKv& operator=(ContiguousKv&& other) noexcept {
        ContiguousKv moved(std::move(other));
        keys_.swap(moved.keys_);
        values_.swap(moved.values_);
        row_size_ = moved.row_size_;
        length_ = moved.length_;
        reserved_ = moved.reserved_;
        return *this;
    }
    ~ContiguousKv() = default;

    [[nodiscard]] KvShape shape() const noexcept { return {keys_.size(), row_size_}; }

    /// Positions held, the same in every layer.
    [[nodiscard]] std::size_t length() const noexcept { return length_; }

    /// Memory of the rows held. What the vectors keep beyond them for growing is not counted; a
    /// copy has none of it.
    [[nodiscard]] std::size_t bytes() const noexcept {
        return length_ * keys_.size() * row_size_ * 2 * sizeof(float);
    }

    [[nodiscard]] std::span<const float> key(std::size_t layer, std::size_t position) const {
        return row(keys_, layer, position);
    }
    [[nodiscard]] std::span<const float> value(std::size_t layer, std::size_t position) const {
        return row(values_, layer, position);
    }

    /// Appends one position: its key rows and its value rows of all layers, each (n_layers,
    /// row_size).
    /// Throws: InvalidArgument if either has another size.
    void push(std::span<const float> keys, std::span<const float> values) {
        check_rows("key", keys.size());
        check_rows("value", values.size());
        reserve(1);
        for (std::size_t layer = 0; layer < keys_.size(); ++layer) {
            const std::size_t from = layer * row_size_;
            std::ranges::copy(keys.subspan(from, row_size_), key_slot(layer, length_).begin());
            std::ranges::copy(values.subspan(from, row_size_), value_slot(layer, length_).begin());
        }
        commit(1);
    }

    /// Drops all rows from position n on.
    /// Throws: InvalidArgument if n exceeds the length.
    void truncate(std::size_t n) {
        check_length("truncate", n);
        length_ = n;
        reserved_ = 0;
        for (Rows& rows : keys_) rows.resize(n * row_size_);
        for (Rows& rows : values_) rows.resize(n * row_size_);
    }

    /// A copy of the first n positions; what follows them is not touched, so it costs n rows and
    /// not the whole KV.
    /// Throws: InvalidArgument if n exceeds the length.
    [[nodiscard]] ContiguousKv prefix(std::size_t n) const {
        check_length("prefix", n);
        ContiguousKv copy(shape());
        for (std::size_t layer = 0; layer < keys_.size(); ++layer) {
            const auto count = static_cast<std::ptrdiff_t>(n * row_size_);
            copy.keys_[layer].assign(keys_[layer].begin(), keys_[layer].begin() + count);
            copy.values_[layer].assign(values_[layer].begin(), values_[layer].begin() + count);
        }
        copy.length_ = n;
        return copy;
    }

    /// See kv_slots. The slots' content is unspecified until it is written; slots that were
    /// reserved before and not committed are forgotten.
    /// Throws: std::bad_alloc, or InvalidArgument if so many rows cannot be addressed.
    void reserve(std::size_t n) {
        const std::size_t most =
            std::numeric_limits<std::size_t>::max() / (sizeof(float) * row_size_);
        if (n > most - length_) {
            kvstem::detail::fail<InvalidArgument>("kv: no room for %zu positions after %zu", n,
                                                  length_);
        }
        reserved_ = 0;  // growing one layer may succeed and the next throw
        const std::size_t floats = (length_ + n) * row_size_;
        for (Rows& rows : keys_) rows.resize(floats);
        for (Rows& rows : values_) rows.resize(floats);
        reserved_ = n;
    }
    [[nodiscard]] std::span<float> key_slot(std::size_t layer, std::size_t position) {
        return slot(keys_, layer, position);
    }
    [[nodiscard]] std::span<float> value_slot(std::size_t layer, std::size_t position) {
        return slot(values_, layer, position);
    }
    void commit(std::size_t n) noexcept {
        KVSTEM_ASSERT(n <= reserved_);
        length_ += n;
        reserved_ -= n;
    }

    /// Equal shape, length and bits of every row. Bits and not values: a NaN equals itself, and
    /// −0 differs from 0, for the question is whether the same computation was done.
    friend bool operator==(const ContiguousKv& a, const ContiguousKv& b) noexcept {
        if (a.shape() != b.shape() || a.length_ != b.length_) return false;
        const std::size_t row_bytes = a.length_ * a.row_size_ * sizeof(float);
        for (std::size_t layer = 0; row_bytes > 0 && layer < a.keys_.size(); ++layer) {
            if (std::memcmp(a.keys_[layer].data(), b.keys_[layer].data(), row_bytes) != 0 ||
                std::memcmp(a.values_[layer].data(), b.values_[layer].data(), row_bytes) != 0) {
                return false;
            }
        }
        return true;
    }

  private:
    /// One layer's keys or values, (length + reserved, row_size). What a failed `reserve` may have
    /// left behind these is never looked at.
    using Rows = std::vector<float>;

    void check_rows(const char* what, std::size_t size) const {
        if (size == keys_.size() * row_size_) return;
        kvstem::detail::fail<InvalidArgument>("kv: %s rows of %zu floats, expected %zu x %zu", what,
                                              size, keys_.size(), row_size_);
    }

    void check_length(const char* what, std::size_t n) const {
        if (n <= length_) return;
        kvstem::detail::fail<InvalidArgument>("kv: %s to %zu positions, only %zu are held", what, n,
                                              length_);
    }

    void check_place(std::size_t layer, std::size_t position, std::size_t begin,
                     std::size_t end) const {
        if (layer < keys_.size() && position >= begin && position < end) return;
        kvstem::detail::fail<InvalidArgument>(
            "kv: layer %zu, position %zu is outside %zu layers, positions %zu up to %zu", layer,
            position, keys_.size(), begin, end);
    }

    [[nodiscard]] std::span<const float> row(const std::vector<Rows>& layers, std::size_t layer,
                                             std::size_t position) const {
        check_place(layer, position, 0, length_);
        return {layers[layer].data() + position * row_size_, row_size_};
    }

    [[nodiscard]] std::span<float> slot(std::vector<Rows>& layers, std::size_t layer,
                                        std::size_t position) {
        check_place(layer, position, length_, length_ + reserved_);
        return {layers[layer].data() + position * row_size_, row_size_};
    }

    std::vector<Rows> keys_;    // one per layer
    std::vector<Rows> values_;  // one per layer
    std::size_t row_size_;
    std::size_t length_ = 0;    // rows that count
    std::size_t reserved_ = 0;  // slots behind them
};

static_assert(kv_view<ContiguousKv>);

}  // namespace kvstem
