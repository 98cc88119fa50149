// SPDX-License-Identifier: MIT
// A block table: page ids side by side, grown without clearing what is about to be overwritten.
#pragma once

#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <utility>

#include "../token.hpp"

namespace kvstem::inline KVSTEM_ABI::detail {

/// Like a vector of PageId, except that `resize` leaves new places unset: a block table of 131,072
/// ids is filled from the tree right after, and clearing it first would cost as much as filling it.
class PageTable {
  public:
    PageTable() = default;
    PageTable(const PageTable&) = delete;
    PageTable& operator=(const PageTable&) = delete;
    ~PageTable() { ::operator delete(data_); }

    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
    /// Gives the memory back.
    void clear() noexcept {
        ::operator delete(std::exchange(data_, nullptr));
        size_ = capacity_ = 0;
    }
    [[nodiscard]] PageId* data() noexcept { return data_; }
    [[nodiscard]] PageId& operator[](std::size_t i) noexcept { return data_[i]; }
    [[nodiscard]] PageId operator[](std::size_t i) const noexcept { return data_[i]; }
    [[nodiscard]] std::span<const PageId> view() const noexcept { return {data_, size_}; }
    [[nodiscard]] std::span<PageId> view() noexcept { return {data_, size_}; }

    /// Throws std::bad_alloc, with nothing changed.
    void reserve(std::size_t pages) {
        if (pages <= capacity_) return;
        const std::size_t larger = pages > capacity_ * 2 ? pages : capacity_ * 2;
        auto* data = static_cast<PageId*>(::operator new(larger * sizeof(PageId)));
        if (size_ != 0) std::memcpy(data, data_, size_ * sizeof(PageId));
        ::operator delete(std::exchange(data_, data));
        capacity_ = larger;
    }
    /// The first `pages` places behind the end. Requires: reserved.
    [[nodiscard]] std::span<PageId> unset(std::size_t pages) noexcept {
        return {data_ + size_, pages};
    }
    /// Requires: reserved.
    void append(PageId page) noexcept { data_[size_++] = page; }
    /// Requires: reserved.
    void resize(std::size_t pages) noexcept { size_ = pages; }

  private:
    PageId* data_ = nullptr;
    std::size_t size_ = 0;
    std::size_t capacity_ = 0;
};

}  // namespace kvstem
