// SPDX-License-Identifier: MIT
// When each recently touched block was touched, in which class, how often: hazard's memory.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "../config.hpp"
#include "hash.hpp"
#include "key_chains.hpp"
#include "reserve_more.hpp"
#include "slot_table.hpp"

namespace kvstem::inline KVSTEM_ABI::detail {

/// Octaves of age, in requests: bucket 0 is age 0, bucket b > 0 is ages 2^(b−1) … 2^b − 1, the last
/// one is all that is older.
inline constexpr std::size_t age_buckets = 24;

constexpr std::size_t age_bucket(std::uint64_t age) noexcept {
    const auto octave = static_cast<std::size_t>(std::bit_width(age));
    return octave < age_buckets ? octave : age_buckets - 1;
}
/// The age at which bucket `b` begins.
constexpr std::uint64_t bucket_begin(std::size_t b) noexcept {
    return b == 0 ? 0 : std::uint64_t{1} << (b - 1);
}

/// The most recently touched blocks, as a tree of segments: blocks that follow one another in a
/// prompt and were touched by the same requests. So a request costs as many steps as its path has
/// segments, not blocks. A segment stands behind the block its parent ends with, and a block is
/// known by its key and its place in the tree.
///
///     root ─ [0 … 3] ─┬─ [4 … 11] ─── [12 … 15]
///                     └─ [4 5 | 6 7]                5 is the last known block of this one
///
/// The history knows the leading `known` blocks of a segment; what lies behind has been forgotten
/// (`forget`, the oldest touch first, the deepest block first). A segment whose blocks have all
/// been forgotten keeps its touch as long as someone uses it: its children, and the owner's nodes
/// (`use`, `release`). It is not found any more except through these.
///
/// A segment that is split keeps its number for the lower part. So a number goes on to lead to the
/// segment of a block: it is that one or one of its ancestors, see `covering`.
///
/// Segments with known blocks stand in a list from the one touched the longest ago to the newest,
/// of one request the deepest first, and know their bucket of age as of the last `advance`.
///
/// Complexity: `follow`, `split` and `touch` O(blocks compared, cut off, entered) and a step for
/// each 16 blocks of the segment before these; `covering` a step for each split since the number
/// was taken; `forget` a step for each 16 blocks; `advance` O(buckets + edges crossed by
/// segments), and a segment crosses each edge once; all else O(1) expected. 48 bytes a segment, 11
/// to 22 to find it, 68 for each 16 blocks begun, and up to twice that for room to grow.
/// Exceptions: `reserve` throws std::bad_alloc; all else is noexcept, within what was reserved.
class TouchHistory {
  public:
    static constexpr std::uint32_t none = 0xFFFF'FFFFu;
    static constexpr std::uint32_t most_counted = 4;

    struct Segment {
        std::uint64_t time = 0;       // of the last touch
        std::uint32_t parent = none;  // none for a root
        std::uint32_t begin = 0;      // blocks before it
        std::uint32_t end = 0;
        std::uint32_t known = 0;
        std::uint32_t first_key = 0;  // of a known block
        std::uint32_t keys = none;    // of the known blocks behind the first
        std::uint32_t older = none;
        std::uint32_t newer = none;
        std::uint32_t users = 0;  // children, users, and the history if there is a known block
        std::uint16_t block_class = 0;
        std::uint8_t bucket = 0;  // of age at the last `advance`
        std::uint8_t count = 0;   // touches, at most `most_counted`

        [[nodiscard]] std::uint32_t known_end() const noexcept { return begin + known; }
        [[nodiscard]] std::uint32_t blocks() const noexcept { return end - begin; }
    };
    /// `depth` blocks from the root on, the last of which is in `segment`.
    struct Place {
        std::uint32_t segment = none;
        std::uint32_t depth = 0;
    };

    /// How many blocks are known.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] const Segment& at(std::uint32_t segment) const noexcept {
        return segments_[segment];
    }
    /// The segment touched the longest ago. Requires: a known block.
    [[nodiscard]] std::uint32_t oldest() const noexcept { return oldest_; }

    /// Room for what one request or publication of so many blocks does.
    void reserve(std::size_t blocks) {
        constexpr std::size_t parts = 8;  // a root, two new segments, and cuts
        // Forgotten segments become known again with chunks of their own.
        const std::size_t returning = std::min(blocks, segments_.size() - free_count_ - listed_);
        if (free_count_ < parts) reserve_more(segments_, parts);
        children_.reserve(returning + parts);
        keys_.reserve(blocks / KeyChains::chunk_keys + 2 * returning + 2 * parts);
    }

    // --- The tree ---

    /// The root of all paths that begin with this key. Requires: a path below it will be touched.
    [[nodiscard]] std::uint32_t root(std::uint64_t key) noexcept {
        const auto low = static_cast<std::uint32_t>(key);
        const auto high = static_cast<std::uint32_t>(key >> 32);
        const std::uint32_t root =
            children_.find(child_hash(none, low), [&](std::uint32_t segment) {
                const Segment& s = segments_[segment];
                return s.parent == none && s.first_key == low && s.keys == high;
            });
        if (root != none) return root;
        const std::uint32_t made = take();
        segments_[made].first_key = low;
        segments_[made].keys = high;
        children_.insert(child_hash(none, low), made);
        return made;
    }
    /// Goes on from a place along the known blocks with the keys `key(depth)`, at most to `end`.
    template <class Key>
    [[nodiscard]] Place follow(Place at, std::uint32_t end, Key&& key) const noexcept {
        while (at.depth < end) {
            const Segment& s = segments_[at.segment];
            at.depth =
                keys_.match(s.keys, s.begin + 1, at.depth, std::min(end, s.known_end()), key);
            if (at.depth == end || at.depth < s.end) break;
            const std::uint32_t child = child_of(at.segment, key(at.depth));
            if (child == none) break;
            at = {child, at.depth + 1};
        }
        return at;
    }
    /// The segment of the block at the end of `depth` blocks, given a number it once had.
    [[nodiscard]] std::uint32_t covering(std::uint32_t segment,
                                         std::uint32_t depth) const noexcept {
        while (segments_[segment].begin >= depth) segment = segments_[segment].parent;
        return segment;
    }
    /// Makes a place the end of a segment, which it returns.
    std::uint32_t end_at(Place at) noexcept {
        if (at.depth == segments_[at.segment].end) return at.segment;
        const std::uint32_t upper = split(at.segment, at.depth);
        free_if_unused(at.segment);
        return upper;
    }
    /// Splits a segment at a depth inside of it, and returns the upper part.
    std::uint32_t split(std::uint32_t segment, std::uint32_t depth) noexcept;

    /// A new segment of blocks that are not known, behind the end of `parent`. It must be touched.
    [[nodiscard]] std::uint32_t add(std::uint32_t parent, std::uint32_t end) noexcept {
        const std::uint32_t made = take();
        segments_[made].parent = parent;
        segments_[made].begin = segments_[parent].end;
        segments_[made].end = end;
        ++segments_[parent].users;
        return made;
    }
    void use(std::uint32_t segment) noexcept { ++segments_[segment].users; }
    void release(std::uint32_t segment) noexcept {
        --segments_[segment].users;
        free_if_unused(segment);
    }

    // --- Touches ---

    /// A segment, all or nothing of which is known, becomes the newest of all. `key(depth)` are the
    /// keys of its blocks.
    template <class Key>
    void touch(std::uint32_t segment, std::uint64_t now, std::size_t block_class,
               std::uint32_t count, Key&& key) noexcept {
        Segment& s = segments_[segment];
        if (s.known != 0) {
            unlink(segment);
        } else {
            s.known = s.blocks();
            s.first_key = key(s.begin);
            s.keys = keys_.write(s.begin + 1, s.end, key);
            children_.insert(child_hash(s.parent, s.first_key), segment);
            ++s.users;
            ++listed_;
            size_ += s.known;
        }
        s.time = now;
        s.block_class = static_cast<std::uint16_t>(block_class);
        s.count = static_cast<std::uint8_t>(count);
        s.bucket = 0;
        s.older = newest_;
        s.newer = none;
        (newest_ != none ? segments_[newest_].newer : oldest_) = segment;
        newest_ = segment;
        for (std::size_t b = first_edge; b < age_buckets && next_across_[b] == none; ++b) {
            set_next_across(b, segment);
        }
    }
    /// Forgets so many known blocks at the end of a segment.
    void forget(std::uint32_t segment, std::uint32_t blocks) noexcept {
        Segment& s = segments_[segment];
        s.known -= blocks;
        size_ -= blocks;
        if (s.known != 0) return;
        children_.erase(child_hash(s.parent, s.first_key), segment);
        keys_.erase(s.keys);
        s.keys = none;
        unlink(segment);
        --listed_;
        release(segment);
    }
    /// The segments to be forgotten next will be looked for.
    void prefetch_oldest() const noexcept {
        std::uint32_t segment = oldest_;
        for (int i = 0; i < 3 && segment != none; ++i) {
            const Segment& s = segments_[segment];
            children_.prefetch(child_hash(s.parent, s.first_key));
            segment = s.newer;
        }
    }

    /// Moves every segment whose age has crossed edges to its bucket: `crossed(segment, bucket)`
    /// is called before, with the bucket to be.
    template <class Crossed>
    void advance(std::uint64_t now, Crossed&& crossed) noexcept {
        for (std::size_t b = first_edge + 1; b < age_buckets; ++b) {
            if (now < due_[b]) continue;
            std::uint32_t segment = next_across_[b];
            do {
                segment = cross(segment, b, crossed);
            } while (segment != none && now - segments_[segment].time >= bucket_begin(b));
            set_next_across(b, segment);
        }
        // The youngest cross several edges at once.
        std::uint32_t& young = next_across_[first_edge];
        while (young != none && now - segments_[young].time >= bucket_begin(first_edge)) {
            young = cross(young, first_edge, crossed);
        }
        for (std::uint32_t segment = young; segment != none;) {
            segment = cross(segment, age_bucket(now - segments_[segment].time), crossed);
        }
    }

    [[nodiscard]] std::size_t bytes() const noexcept {
        return segments_.capacity() * sizeof(Segment) + children_.bytes() + keys_.bytes();
    }

  private:
    static constexpr std::uint64_t never = ~std::uint64_t{0};
    // Crossed 16 requests after a touch; `advance` must not come sooner after the one before.
    static constexpr std::size_t first_edge = 5;

    static std::uint32_t child_hash(std::uint32_t parent, std::uint32_t first_key) noexcept {
        const std::uint64_t both = std::uint64_t{parent} << 32 | first_key;
        return static_cast<std::uint32_t>(hash_round(0, both, hash_factor_a) >> 32);
    }
    [[nodiscard]] std::uint32_t child_of(std::uint32_t parent,
                                         std::uint32_t first_key) const noexcept {
        // Of a path that was touched last the child is the older neighbour.
        const std::uint32_t guess = segments_[parent].older;
        if (guess != none && segments_[guess].parent == parent &&
            segments_[guess].first_key == first_key && segments_[guess].known != 0) {
            return guess;
        }
        return children_.find(child_hash(parent, first_key), [&](std::uint32_t segment) {
            return segments_[segment].parent == parent && segments_[segment].first_key == first_key;
        });
    }

    [[nodiscard]] std::uint32_t take() noexcept {
        if (free_ == none) {
            segments_.emplace_back();  // reserved
            return static_cast<std::uint32_t>(segments_.size() - 1);
        }
        const std::uint32_t segment = free_;
        free_ = segments_[segment].newer;
        --free_count_;
        segments_[segment] = {};
        return segment;
    }
    /// A segment without users goes, and those of its ancestors that were there for it only.
    void free_if_unused(std::uint32_t segment) noexcept {
        while (segment != none && segments_[segment].users == 0) {
            const std::uint32_t parent = segments_[segment].parent;
            if (parent == none) {
                children_.erase(child_hash(none, segments_[segment].first_key), segment);
            } else {
                --segments_[parent].users;
            }
            segments_[segment].newer = free_;
            free_ = segment;
            ++free_count_;
            segment = parent;
        }
    }

    void unlink(std::uint32_t segment) noexcept {
        const Segment& s = segments_[segment];
        for (std::size_t b = std::max<std::size_t>(s.bucket + 1u, first_edge);
             b < age_buckets && next_across_[b] == segment; ++b) {
            set_next_across(b, s.newer);
        }
        (s.older != none ? segments_[s.older].newer : oldest_) = s.newer;
        (s.newer != none ? segments_[s.newer].older : newest_) = s.older;
    }
    template <class Crossed>
    std::uint32_t cross(std::uint32_t segment, std::size_t bucket, Crossed&& crossed) noexcept {
        Segment& s = segments_[segment];
        if (s.bucket < bucket) {  // or it has crossed a later edge already
            crossed(s, bucket);
            s.bucket = static_cast<std::uint8_t>(bucket);
        }
        return s.newer;
    }
    void set_next_across(std::size_t bucket, std::uint32_t segment) noexcept {
        next_across_[bucket] = segment;
        due_[bucket] = segment == none ? never : segments_[segment].time + bucket_begin(bucket);
    }
    template <class Number>
    static constexpr std::array<Number, age_buckets> filled_with(Number number) noexcept {
        std::array<Number, age_buckets> numbers{};
        for (Number& each : numbers) each = number;
        return numbers;
    }

    std::vector<Segment> segments_;
    SlotTable children_;  // roots, and the segments with known blocks
    KeyChains keys_;
    std::size_t size_ = 0;
    std::size_t listed_ = 0;  // segments with known blocks
    std::size_t free_count_ = 0;
    std::uint32_t free_ = none;  // chained by `newer`
    std::uint32_t oldest_ = none;
    std::uint32_t newest_ = none;
    // For each edge from the first one on: the oldest segment that has not crossed it yet, and when
    // it will.
    std::array<std::uint32_t, age_buckets> next_across_ = filled_with(none);
    std::array<std::uint64_t, age_buckets> due_ = filled_with(never);
};

inline std::uint32_t TouchHistory::split(std::uint32_t segment, std::uint32_t depth) noexcept {
    const std::uint32_t upper = take();
    Segment& low = segments_[segment];
    Segment& up = segments_[upper];
    up = low;
    up.end = depth;
    up.users = 1;
    low.parent = upper;
    low.begin = depth;
    if (low.known == 0) return upper;

    // The upper part comes right behind the lower one in the list.
    const std::uint32_t hash = child_hash(up.parent, up.first_key);
    ++up.users;
    ++listed_;
    up.older = segment;
    (up.newer != none ? segments_[up.newer].older : newest_) = upper;
    low.newer = upper;
    children_.replace(hash, segment, upper);
    if (up.known > up.blocks()) {
        const KeyChains::Parts parts = keys_.cut(up.keys, up.begin + 1, depth);
        up.known = up.blocks();
        up.keys = parts.upper;
        low.known -= up.known;
        low.keys = parts.lower;
        low.first_key = parts.key;
        children_.insert(child_hash(upper, low.first_key), segment);
        return upper;
    }
    low.known = 0;
    low.keys = none;
    unlink(segment);
    --listed_;
    --low.users;
    return upper;
}

}  // namespace kvstem
