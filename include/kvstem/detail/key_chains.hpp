// SPDX-License-Identifier: MIT
// The keys of blocks, in chains of chunks of one cache line: what hazard compares paths with.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "../config.hpp"
#include "reserve_more.hpp"

namespace kvstem::inline KVSTEM_ABI::detail {

/// Lists of 32-bit keys, each for consecutive depths. A chunk holds the keys of depths 16 q to
/// 16 q + 15, so that a list can be cut at any depth by copying one chunk:
///
///     depths 14 … 49    [· … 14 15] → [16 … 31] → [32 … 47] → [48 49 · …]
///     cut at 35         [· … 14 15] → [16 … 31] → [32 33 34 · …]
///                                                 [· · · · 36 … 47] → [48 49 · …]
///
/// Complexity: O(1) a chunk; all calls are linear in the chunks from the list's first one to the
/// last one asked for. Exceptions: `reserve` throws std::bad_alloc; all else is noexcept, within
/// what was reserved.
class KeyChains {
  public:
    static constexpr std::uint32_t none = 0xFFFF'FFFFu;
    static constexpr std::uint32_t chunk_keys = 16;

    /// Room for so many more chunks. A list of n keys needs up to n / 16 + 2, a cut one.
    void reserve(std::size_t more) {
        if (more <= free_count_) return;
        reserve_more(chunks_, more - free_count_);
        reserve_more(next_, more - free_count_);
    }

    /// A new list for the depths from `begin` on: `key(depth)` for each. None for an empty one.
    template <class Key>
    [[nodiscard]] std::uint32_t write(std::uint32_t begin, std::uint32_t end, Key&& key) noexcept {
        std::uint32_t first = none;
        std::uint32_t last = none;
        for (std::uint32_t depth = begin; depth < end;) {
            const std::uint32_t chunk = take();
            const std::uint32_t from = chunk_begin(depth);
            const std::uint32_t stop = std::min(end, from + chunk_keys);
            for (; depth < stop; ++depth) chunks_[chunk].keys[depth - from] = key(depth);
            (last == none ? first : next_[last]) = chunk;
            last = chunk;
        }
        return first;
    }

    /// The first depth in [from, to) whose key is not `key(depth)`; `to` if all are. The list
    /// begins at depth `begin`.
    template <class Key>
    [[nodiscard]] std::uint32_t match(std::uint32_t list, std::uint32_t begin, std::uint32_t from,
                                      std::uint32_t to, Key&& key) const noexcept {
        if (from >= to) return from;
        std::uint32_t chunk = skip(list, begin, from);
        for (std::uint32_t depth = from;;) {
            const std::uint32_t first = chunk_begin(depth);
            const std::uint32_t stop = std::min(to, first + chunk_keys);
            for (; depth < stop; ++depth) {
                if (chunks_[chunk].keys[depth - first] != key(depth)) return depth;
            }
            if (depth == to) return to;
            chunk = next_[chunk];
        }
    }

    struct Parts {
        std::uint32_t upper = none;  // the keys before the cut
        std::uint32_t lower = none;  // those after it
        std::uint32_t key = 0;       // the one at it
    };
    /// Cuts a list that begins at depth `begin` and has a key for depth `at`.
    [[nodiscard]] Parts cut(std::uint32_t list, std::uint32_t begin, std::uint32_t at) noexcept {
        if (at == begin) {
            const std::uint32_t key = chunks_[list].keys[at % chunk_keys];
            if (at + 1 != chunk_end(at)) return {none, list, key};
            const std::uint32_t rest = next_[list];
            give(list);
            return {none, rest, key};
        }
        std::uint32_t before = none;
        std::uint32_t chunk = list;  // of the last key that stays
        for (std::uint32_t i = begin / chunk_keys; i < (at - 1) / chunk_keys; ++i) {
            before = chunk;
            chunk = next_[chunk];
        }
        const std::uint32_t next = next_[chunk];
        const bool key_is_here = at < chunk_end(at - 1);
        const std::uint32_t key = chunks_[key_is_here ? chunk : next].keys[at % chunk_keys];
        if (at + 1 >= chunk_end(at - 1)) {
            next_[chunk] = none;
            return {list, next, key};
        }
        const std::uint32_t copy = take();
        chunks_[copy].keys = chunks_[chunk].keys;
        if (before == none) return {copy, chunk, key};
        next_[before] = copy;
        return {list, chunk, key};
    }

    /// Gives back a list.
    void erase(std::uint32_t list) noexcept {
        while (list != none) {
            const std::uint32_t next = next_[list];
            give(list);
            list = next;
        }
    }

    [[nodiscard]] std::size_t bytes() const noexcept {
        return chunks_.capacity() * sizeof(Chunk) + next_.capacity() * sizeof(std::uint32_t);
    }

  private:
    struct alignas(64) Chunk {
        std::array<std::uint32_t, chunk_keys> keys;
    };

    /// Of the chunk that has the key of this depth: its first depth, and one past its last.
    static std::uint32_t chunk_begin(std::uint32_t depth) noexcept {
        return depth / chunk_keys * chunk_keys;
    }
    static std::uint32_t chunk_end(std::uint32_t depth) noexcept {
        return chunk_begin(depth) + chunk_keys;
    }
    [[nodiscard]] std::uint32_t skip(std::uint32_t list, std::uint32_t begin,
                                     std::uint32_t depth) const noexcept {
        for (std::uint32_t i = begin / chunk_keys; i < depth / chunk_keys; ++i) {
            list = next_[list];
        }
        return list;
    }
    [[nodiscard]] std::uint32_t take() noexcept {
        if (free_ == none) {
            chunks_.emplace_back();  // reserved
            next_.push_back(none);
            return static_cast<std::uint32_t>(chunks_.size() - 1);
        }
        const std::uint32_t chunk = free_;
        free_ = next_[chunk];
        next_[chunk] = none;
        --free_count_;
        return chunk;
    }
    void give(std::uint32_t chunk) noexcept {
        next_[chunk] = free_;
        free_ = chunk;
        ++free_count_;
    }

    std::vector<Chunk> chunks_;
    std::vector<std::uint32_t> next_;  // of each chunk; apart, so that giving back reads no keys
    std::uint32_t free_ = none;
    std::size_t free_count_ = 0;
};

}  // namespace kvstem
