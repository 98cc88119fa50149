// SPDX-License-Identifier: MIT
// KV rows in pages that many sequences share: one store, and one view per sequence.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "../config.hpp"
#include "../errors.hpp"
#include "../token.hpp"
#include "kv.hpp"
#include "model_config.hpp"

namespace kvstem::inline KVSTEM_ABI::reference {

/// The memory of all page groups of a model: page id p names P consecutive positions in every
/// layer. Who owns which page is not known here; ids come from a lease's block table.
///
/// Choose it when: sequences share prefixes by page, as a RadixCache arranges it. For one sequence
/// that owns its rows see ContiguousKv.
/// Layout: one array of shape (page, layer, 2, P, row_size), keys before values, so that a page
/// group is one contiguous run and copying it is one copy.
/// Invalidation: never moves its rows while it lives.
/// Exceptions: InvalidArgument naming the id, layer or slot that is out of range.
/// Threads: calls on different page groups may run at the same time.
///
///     reference::PagedKvStore store(model.config().kv_shape(), 64, 16);  // 64 pages of 16
class PagedKvStore {
  public:
    /// Throws: InvalidArgument if a size is 0 or their product does not fit, std::bad_alloc.
    PagedKvStore(KvShape shape, std::size_t capacity_pages, std::size_t page_tokens)
        : shape_(shape), capacity_pages_(capacity_pages), page_tokens_(page_tokens) {
        const std::size_t most = std::numeric_limits<std::size_t>::max() / sizeof(float);
        std::size_t floats = 2;
        // Multiplied step by step, each against what is left of the address space.
        for (const std::size_t size :
             {shape.n_layers, shape.row_size, page_tokens, capacity_pages}) {
            if (size == 0 || floats > most / size || capacity_pages > index_of(no_page)) {
                kvstem::detail::fail<InvalidArgument>(
                    "paged kv: no store of %zu pages of %zu positions, %zu layers of %zu floats",
                    capacity_pages, page_tokens, shape.n_layers, shape.row_size);
            }
            floats *= size;
        }
        data_.resize(floats);
    }

    [[nodiscard]] KvShape shape() const noexcept { return shape_; }
    [[nodiscard]] std::size_t capacity_pages() const noexcept { return capacity_pages_; }
    /// P, the positions of one page.
    [[nodiscard]] std::size_t page_tokens() const noexcept { return page_tokens_; }
    [[nodiscard]] std::size_t bytes() const noexcept { return data_.size() * sizeof(float); }

    /// The key row (row_size) of position `slot` 0 … P − 1 within the page.
    [[nodiscard]] std::span<float> key(PageId page, std::size_t layer, std::size_t slot) {
        return {data_.data() + offset(page, layer, 0, slot), shape_.row_size};
    }
    [[nodiscard]] std::span<const float> key(PageId page, std::size_t layer,
                                             std::size_t slot) const {
        return {data_.data() + offset(page, layer, 0, slot), shape_.row_size};
    }
    /// The value row (row_size), likewise.
    [[nodiscard]] std::span<float> value(PageId page, std::size_t layer, std::size_t slot) {
        return {data_.data() + offset(page, layer, 1, slot), shape_.row_size};
    }
    [[nodiscard]] std::span<const float> value(PageId page, std::size_t layer,
                                               std::size_t slot) const {
        return {data_.data() + offset(page, layer, 1, slot), shape_.row_size};
    }

    /// Copies all P positions in every layer, keys and values.
    /// Throws: InvalidArgument if an id is out of range or both are the same.
    void copy_page(PageId from, PageId to) { copy_rows(from, to, page_tokens_); }

    /// Copies the first n positions in every layer; the rest of `to` stays as it is. This is what a
    /// partial match or a fork needs of the page it stops in.
    /// Throws: InvalidArgument if an id is out of range, both are the same, or n > P.
    void copy_rows(PageId from, PageId to, std::size_t n) {
        const std::size_t source = offset(from, 0, 0, 0);
        const std::size_t target = offset(to, 0, 0, 0);
        if (from == to) {
            kvstem::detail::fail<InvalidArgument>("paged kv: page %u copied onto itself",
                                                  index_of(from));
        }
        if (n > page_tokens_) {
            kvstem::detail::fail<InvalidArgument>("paged kv: %zu rows of a page of %zu", n,
                                                  page_tokens_);
        }
        // A page group is a run of n_layers · 2 parts (P, row_size); of each the first n rows go.
        const std::size_t stride = page_tokens_ * shape_.row_size;
        for (std::size_t part = 0; part < shape_.n_layers * 2; ++part) {
            std::copy_n(data_.data() + source + part * stride, n * shape_.row_size,
                        data_.data() + target + part * stride);
        }
    }

  private:
    /// Where the row (page, layer, key 0 or value 1, slot) begins.
    [[nodiscard]] std::size_t offset(PageId page, std::size_t layer, std::size_t part,
                                     std::size_t slot) const {
        if (index_of(page) >= capacity_pages_) {
            kvstem::detail::fail<InvalidArgument>("paged kv: page %u of a store of %zu",
                                                  index_of(page), capacity_pages_);
        }
        if (layer >= shape_.n_layers || slot >= page_tokens_) {
            kvstem::detail::fail<InvalidArgument>("paged kv: layer %zu of %zu, slot %zu of %zu",
                                                  layer, shape_.n_layers, slot, page_tokens_);
        }
        const std::size_t run = (index_of(page) * shape_.n_layers + layer) * 2 + part;
        return (run * page_tokens_ + slot) * shape_.row_size;
    }

    KvShape shape_;
    std::size_t capacity_pages_;
    std::size_t page_tokens_;
    std::vector<float> data_;  // (page, layer, 2, P, row_size)
};

/// One sequence's rows in a store, found through its block table: position p lies in slot p mod P
/// of page block_table[p / P].
///
/// With P = 4, a length of 6 and the table {7, 2, 5}:
///
///     position   0  1  2  3 │ 4  5  6  7 │ 8 …
///     page       7  7  7  7 │ 2  2  2  2 │ 5 …
///     is         row    …       row │ slot, once reserved
///
/// A view owns nothing: store and block table must outlive it, and it sees the table as it is at
/// each access. Make one per step from a lease's table and the positions it has written; cheap to
/// copy.
/// States of a table entry: a page id; `no_page`, given back because a sliding window has passed
/// it. Rows of such a page are gone: touching one is an error, never another sequence's row.
/// Exceptions: InvalidArgument naming position and page. Writing goes only to positions from
/// `length()` on; that these lie in pages nobody else reads is the lease's promise.
///
///     reference::PagedKvView kv(store, block_table, written);
///     decoder.forward_batch(chunk, written, kv);  // kv.length() has grown by the chunk
class PagedKvView {
  public:
    /// Throws: InvalidArgument if the table is too short for `length_tokens` positions.
    PagedKvView(PagedKvStore& store, std::span<const PageId> block_table, std::size_t length_tokens)
        : store_(&store), block_table_(block_table), length_(length_tokens) {
        check_room(length_tokens, 0);
    }

    [[nodiscard]] KvShape shape() const noexcept { return store_->shape(); }
    [[nodiscard]] std::size_t length() const noexcept { return length_; }

    [[nodiscard]] std::span<const float> key(std::size_t layer, std::size_t position) const {
        return store_->key(page_at(position, 0, length_), layer, slot_of(position));
    }
    [[nodiscard]] std::span<const float> value(std::size_t layer, std::size_t position) const {
        return store_->value(page_at(position, 0, length_), layer, slot_of(position));
    }

    /// See kv_slots. Takes no pages: the table must already have them.
    /// Throws: InvalidArgument if it has not, or holds no valid page where a slot would lie.
    void reserve(std::size_t n) {
        check_room(length_, n);
        if (n > 0) {
            // Found here, a missing page costs nothing; found in the last layer, a whole step.
            const std::size_t last = (length_ + n - 1) / store_->page_tokens();
            for (std::size_t i = length_ / store_->page_tokens(); i <= last; ++i) check_page(i);
        }
        reserved_ = n;
    }
    [[nodiscard]] std::span<float> key_slot(std::size_t layer, std::size_t position) {
        return store_->key(page_at(position, length_, length_ + reserved_), layer,
                           slot_of(position));
    }
    [[nodiscard]] std::span<float> value_slot(std::size_t layer, std::size_t position) {
        return store_->value(page_at(position, length_, length_ + reserved_), layer,
                             slot_of(position));
    }
    void commit(std::size_t n) noexcept {
        KVSTEM_ASSERT(n <= reserved_);
        length_ += n;
        reserved_ -= n;
    }

  private:
    [[nodiscard]] std::size_t slot_of(std::size_t position) const noexcept {
        return position % store_->page_tokens();
    }

    void check_room(std::size_t length, std::size_t n) const {
        // Compared in pages: table size times P could overflow, rounding up a quotient cannot.
        const std::size_t page = store_->page_tokens();
        const std::size_t end = length + n;
        if (end >= length && end / page + (end % page != 0) <= block_table_.size()) return;
        kvstem::detail::fail<InvalidArgument>(
            "paged kv: %zu + %zu positions in a block table of %zu pages of %zu", length, n,
            block_table_.size(), page);
    }

    void check_page(std::size_t index) const {
        const PageId page = block_table_[index];
        if (page == no_page) {
            kvstem::detail::fail<InvalidArgument>(
                "paged kv: page %zu of the sequence was given back (its window has passed it)",
                index);
        }
        if (index_of(page) >= store_->capacity_pages()) {
            kvstem::detail::fail<InvalidArgument>(
                "paged kv: block table entry %zu names page %u of a store of %zu", index,
                index_of(page), store_->capacity_pages());
        }
    }

    [[nodiscard]] PageId page_at(std::size_t position, std::size_t begin, std::size_t end) const {
        if (position < begin || position >= end) {
            kvstem::detail::fail<InvalidArgument>(
                "paged kv: position %zu is outside positions %zu up to %zu", position, begin, end);
        }
        const std::size_t index = position / store_->page_tokens();
        check_page(index);
        return block_table_[index];
    }

    PagedKvStore* store_;
    std::span<const PageId> block_table_;
    std::size_t length_;
    std::size_t reserved_ = 0;
};

static_assert(kv_view<PagedKvView>);

}  // namespace kvstem
