// SPDX-License-Identifier: MIT
// One KV type for each way of meeting the concepts, none with more than its name says.
#pragma once

#include <cstddef>
#include <span>
#include <stdexcept>

#include "counting_kv.hpp"

namespace kvstem_test {

/// Length, bytes and a copy, nothing else: cannot be cut.
class WholeKv : public CountingRows {
  public:
    using CountingRows::CountingRows;
    static std::size_t cut(std::size_t length, std::size_t n) { return n == length ? n : 0; }
};

/// The cheap copy of the first positions; `truncate` is there too and must not be used.
class PrefixKv : public CountingRows {
  public:
    using CountingRows::CountingRows;
    [[nodiscard]] PrefixKv prefix(std::size_t n) const { return PrefixKv(first_rows(n)); }
    void truncate(std::size_t n) { drop_rows_from(n); }
    static std::size_t cut(std::size_t /*length*/, std::size_t n) { return n; }
};

/// Moves, and does not copy.
class MoveOnlyKv : public CountingRows {
  public:
    using CountingRows::CountingRows;
    MoveOnlyKv(MoveOnlyKv&&) noexcept = default;
    MoveOnlyKv& operator=(MoveOnlyKv&&) noexcept = default;
    static std::size_t cut(std::size_t length, std::size_t n) { return n == length ? n : 0; }
};

/// Has no copy constructor but can copy its beginning, which may be all of it.
class PrefixOnlyKv : public CountingRows {
  public:
    using CountingRows::CountingRows;
    PrefixOnlyKv(PrefixOnlyKv&&) noexcept = default;
    PrefixOnlyKv& operator=(PrefixOnlyKv&&) noexcept = default;
    [[nodiscard]] PrefixOnlyKv prefix(std::size_t n) const { return PrefixOnlyKv(first_rows(n)); }
    static std::size_t cut(std::size_t /*length*/, std::size_t n) { return n; }
};

/// Can be moved into place once and never assigned to.
class UnassignableKv : public CountingRows {
  public:
    using CountingRows::CountingRows;
    UnassignableKv(const UnassignableKv&) = default;
    UnassignableKv(UnassignableKv&&) noexcept = default;
    UnassignableKv& operator=(const UnassignableKv&) = delete;
    UnassignableKv& operator=(UnassignableKv&&) = delete;
    ~UnassignableKv() = default;
    void truncate(std::size_t n) { drop_rows_from(n); }
    static std::size_t cut(std::size_t /*length*/, std::size_t n) { return n; }
};

/// A sliding window of W positions whose memory keeps the last `Retained` ≥ W positions. To resume
/// at n it needs the W positions before n, so a cut below (first kept position + W) is impossible
/// once early positions have been dropped.
template <std::size_t W, std::size_t Retained = W>
class WindowKv : public CountingRows {
  public:
    static_assert(Retained >= W);
    using CountingRows::CountingRows;

    [[nodiscard]] std::size_t longest_cut(std::size_t n) const noexcept { return cut(length(), n); }
    void truncate(std::size_t n) {
        if (cut(length(), n) != n) throw std::logic_error("cut where the window is gone");
        drop_rows_from(n);
    }
    static std::size_t cut(std::size_t length, std::size_t n) noexcept {
        if (n >= length || length <= Retained) return n;
        return n >= length - Retained + W ? n : 0;
    }
};

/// A recurrent state with a checkpoint every K positions: a cut goes back to the last checkpoint.
template <std::size_t K>
class CheckpointKv : public CountingRows {
  public:
    using CountingRows::CountingRows;

    [[nodiscard]] std::size_t longest_cut(std::size_t n) const noexcept { return cut(length(), n); }
    [[nodiscard]] CheckpointKv prefix(std::size_t n) const {
        if (cut(length(), n) != n) throw std::logic_error("cut where there is no checkpoint");
        return CheckpointKv(first_rows(n));
    }
    static std::size_t cut(std::size_t length, std::size_t n) noexcept {
        return n >= length ? n : n / K * K;
    }
};

}  // namespace kvstem_test
