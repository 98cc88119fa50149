// SPDX-License-Identifier: MIT
// KV and logits whose n-th copy throws.
#pragma once

#include <cstddef>
#include <exception>
#include <span>
#include <vector>

#include "counting_kv.hpp"

namespace kvstem_test {

struct CopyFailed : std::exception {
    [[nodiscard]] const char* what() const noexcept override {
        return "this copy was made to fail";
    }
};

/// While it lives, the n-th copy from its construction on (the first is 1) throws CopyFailed.
/// One at a time. `fired()` tells whether there was an n-th copy.
class FailingCopy {
  public:
    explicit FailingCopy(std::size_t n) noexcept { left_ = n; }
    FailingCopy(const FailingCopy&) = delete;
    FailingCopy& operator=(const FailingCopy&) = delete;
    ~FailingCopy() { left_ = 0; }

    [[nodiscard]] bool fired() const noexcept { return left_ == 0; }

    static void count_copy() {
        if (left_ != 0 && --left_ == 0) throw CopyFailed();
    }

  private:
    static inline std::size_t left_ = 0;  // 0: no copy is to fail
};

/// A contiguous KV; copying it and truncating it (which may have to allocate) can be made to fail.
class ThrowingKv : public CountingRows {
  public:
    using CountingRows::CountingRows;
    ThrowingKv(const ThrowingKv& other) : CountingRows(other) { FailingCopy::count_copy(); }
    ThrowingKv(ThrowingKv&&) noexcept = default;
    ThrowingKv& operator=(const ThrowingKv&) = delete;
    ThrowingKv& operator=(ThrowingKv&&) noexcept = default;
    ~ThrowingKv() = default;
    void truncate(std::size_t n) {
        FailingCopy::count_copy();
        drop_rows_from(n);
    }
};

/// The same with `prefix`.
class ThrowingPrefixKv : public CountingRows {
  public:
    using CountingRows::CountingRows;
    ThrowingPrefixKv(const ThrowingPrefixKv& other) : CountingRows(other) {
        FailingCopy::count_copy();
    }
    ThrowingPrefixKv(ThrowingPrefixKv&&) noexcept = default;
    ThrowingPrefixKv& operator=(const ThrowingPrefixKv&) = delete;
    ThrowingPrefixKv& operator=(ThrowingPrefixKv&&) noexcept = default;
    ~ThrowingPrefixKv() = default;
    [[nodiscard]] ThrowingPrefixKv prefix(std::size_t n) const {
        FailingCopy::count_copy();
        return ThrowingPrefixKv(first_rows(n));
    }
};

struct ThrowingLogits {
    std::vector<float> row;

    explicit ThrowingLogits(std::vector<float> values) : row(std::move(values)) {}
    ThrowingLogits(const ThrowingLogits& other) : row(other.row) { FailingCopy::count_copy(); }
    ThrowingLogits(ThrowingLogits&&) noexcept = default;
    ThrowingLogits& operator=(const ThrowingLogits& other) { return *this = ThrowingLogits(other); }
    ThrowingLogits& operator=(ThrowingLogits&&) noexcept = default;
    ~ThrowingLogits() = default;

    [[nodiscard]] const float* data() const noexcept { return row.data(); }
    [[nodiscard]] std::size_t size() const noexcept { return row.size(); }
};

}  // namespace kvstem_test
