// SPDX-License-Identifier: MIT
// Hazard: evicts what is least likely to be used soon, by what all traffic so far has shown.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "../config.hpp"
#include "../detail/hazard_leaves.hpp"
#include "../detail/hazard_table.hpp"
#include "../detail/path_keys.hpp"
#include "../detail/touch_history.hpp"
#include "../radix_tree.hpp"
#include "../token.hpp"
#include "policy.hpp"

namespace kvstem::inline KVSTEM_ABI {

/// Evicts the leaf of the lowest worth, worth being learned from the traffic. With no history it is
/// least recently used, leaves first. There is nothing that has to be set.
///
/// Choose it where prompts have turns or parts of different kinds and the cache is small for the
/// traffic: on public traces it hits up to twice as often as LeastRecentlyUsed, and has nowhere
/// lost 1 %. It costs memory for a history of max(4 × capacity, 65,536) blocks: 15 to 25 bytes
/// each on these traces, less where many blocks are touched together, up to 130 where prompts grow
/// by two blocks a turn; and 190 KB for each tag. It takes 2.4 to 3.6 times LeastRecentlyUsed's
/// time, 1.2 to 1.7 µs a request of 24 blocks.
///
/// The order, exactly. Time is the number of granted requests. Every block (page) that a request
/// could adopt, resident or not, is touched when the request is granted, before anything is
/// evicted; a block that is published and that the history does not find then (an answer) is
/// touched then. A touch gives a block
///
///   - a count: one more than at its last touch, if the history has all blocks from the root to it,
///     and 1 otherwise. The history has the most recently touched blocks; above its bound the
///     oldest touch goes first, and of one request the deepest block. It finds a block behind the
///     one before it: what an answer has left there when its prompt was forgotten is found again
///     only while the pages are in the tree;
///   - a class: min(count, 4), with the octave of d, the number of the request's blocks that were
///     not in the history (0; 1; 2, 3; 4 … 7; …), with the request's tag (RequestHints; those above
///     15 count as 15). Partial last blocks have one class of their own.
///
/// For each class and octave of age (HazardTable) it counts re-uses and block-requests of exposure,
/// over all blocks of the history. From time to time (`rebuild_interval`) their ratio, drawn to
/// what count, size and tag make one expect and to the pooled ratio, becomes the hazard; the worth
/// is the largest ratio, over all horizons, of expected hits to expected block-requests of
/// residence. Equal worth goes by the oldest touch, then the deepest, then the one published first.
/// All in doubles and the same bits everywhere, if multiplications and additions are not fused
/// (-ffp-contract=off).
///
/// Complexity: a request O(blocks it does not find in the tree + segments of its path, see
/// TouchHistory, + 65 × the largest tag) amortised: what grows with the history is moved as a
/// whole when it does. A victim O(log n) amortised + O(65 × the largest tag). Memory is never
/// given back: in the steady state nothing is allocated. Exceptions: `attach`, `request` and
/// `reserve` throw std::bad_alloc with nothing changed.
class Hazard {
  public:
    using NodeData = detail::HazardLeaf;  // of a root only `touched` is used: its namespace's key
    /// What a lease keeps of its request.
    struct RequestData {
        /// The kind of traffic that what the lease publishes is counted as.
        std::uint32_t tag = 0;
    };
    static constexpr std::uint32_t most_tags = 16;
    /// How many requests after this one the hazards are worked out again. Counts are of all time,
    /// so they change ever more slowly: after 1,024 requests it waits for a 64th more of them. But
    /// what is new must not wait for ever.
    static constexpr std::uint64_t rebuild_interval(std::uint64_t request) noexcept {
        return std::clamp<std::uint64_t>(request / 64, 16, 256);
    }

    Hazard() = default;
    /// `least_history_blocks`: in place of 65,536. A shorter history learns from fewer re-uses.
    explicit Hazard(std::size_t least_history_blocks) noexcept
        : history_limit_(least_history_blocks) {}

    void attach(std::size_t capacity_pages) {
        history_limit_ = std::max(4 * capacity_pages, history_limit_);
        first_prior_ = 1.0 / static_cast<double>(std::max(capacity_pages, std::size_t{1}));
        use_tag(0);
    }

    template <class Nodes, class Info>
    void request(Nodes& nodes, const Info& info, RequestData& data) {
        const std::uint32_t tag = std::min(info.hints.tag, most_tags - 1);
        history_.reserve(info.path_pages());
        use_tag(tag);
        // Nothing fails from here on.
        data.tag = tag;
        now_ = requests_++;
        nodes.order(info.root).touched = detail::namespace_key(info.name);
        trim();
        if (info.path_pages() != 0) touch_path(nodes, info, tag);
        if (now_ >= next_rebuild_) {
            next_rebuild_ = now_ + rebuild_interval(now_);
            history_.advance(now_, [this](const Segment& s, std::size_t bucket) {
                table_.cross(s.block_class, s.bucket, bucket, s.time, s.known);
            });
            table_.rebuild(now_, first_prior_);
        }
        if (history_.size() > history_limit_) history_.prefetch_oldest();
    }

    void reserve(std::size_t pages) { history_.reserve(pages); }

    /// Pages that no request has touched, or that have been forgotten since, are touched now.
    template <class Nodes>
    void inserted(Nodes& nodes, NodeId node, const RequestData& data) noexcept {
        const auto pages = static_cast<std::uint32_t>(nodes.page_ids(node).size());
        const auto tokens = nodes.tokens(node);
        const std::size_t page_tokens = tokens.size() / pages;
        const NodeId above = nodes.parent(node);
        Place at = place_of(nodes, above);
        const std::uint32_t begin = at.depth;
        const std::uint32_t end = begin + pages;
        const auto key = [&](std::uint32_t depth) {
            return detail::block_key(tokens.data() + (depth - begin) * page_tokens, page_tokens);
        };
        at = history_.follow(at, end, key);
        if (at.depth != end) {
            const std::size_t block_class =
                data.tag * detail::classes_per_tag + detail::size_group(end - at.depth);
            at.segment = history_.add(history_.end_at(at), end);
            touch(at.segment, block_class, 1, key);
        }
        history_.use(at.segment);
        nodes.order(node) = {};
        nodes.order(node).serial = ++serial_;
        nodes.order(node).depth = end;
        nodes.order(node).segment = at.segment;
    }
    template <class Nodes>
    void detached(Nodes& nodes, NodeId node) noexcept {
        stop_using(nodes.order(node));
    }

    template <class Nodes>
    void unpinned(Nodes& nodes, NodeId node) noexcept {
        if (nodes.is_leaf(node)) insert(nodes, node);
    }
    template <class Nodes>
    void became_leaf(Nodes& nodes, NodeId node) noexcept {
        insert(nodes, node);
    }
    template <class Nodes>
    void pinned(Nodes& nodes, NodeId node) noexcept {
        if (nodes.order(node).place != NodeData::Place::nowhere) leaves_.take_out(nodes, node);
    }
    template <class Nodes>
    void removed(Nodes& nodes, NodeId node) noexcept {
        pinned(nodes, node);
        stop_using(nodes.order(node));
    }
    template <class Nodes>
    void split(Nodes& nodes, NodeId upper, NodeId lower) noexcept {
        NodeData& data = nodes.order(upper);
        data.place = NodeData::Place::nowhere;
        data.depth -= nodes.pages(lower);
        if (data.segment != History::none) history_.use(data.segment);
    }
    template <class Nodes>
    void split_pinned(Nodes& nodes, NodeId upper, NodeId lower) noexcept {
        split(nodes, upper, lower);
    }
    template <class Nodes>
    void joined(Nodes& nodes, NodeId upper, NodeId) noexcept {
        stop_using(nodes.order(upper));
    }
    template <class Nodes>
    void trimming(Nodes& nodes, NodeId leaf, std::uint32_t gone) noexcept {
        leaves_.take_out(nodes, leaf);
        nodes.order(leaf).depth -= gone;
        insert(nodes, leaf);
    }
    /// The last pages, as far as they were touched together.
    template <class Nodes>
    [[nodiscard]] std::uint32_t run(Nodes& nodes, NodeId leaf) const noexcept {
        const NodeData& data = nodes.order(leaf);
        const Segment& s = history_.at(history_.covering(data.segment, data.depth));
        return std::min(nodes.pages(leaf), data.depth - s.begin);
    }
    template <class Nodes>
    [[nodiscard]] NodeId victim(Nodes& nodes) noexcept {
        return leaves_.least(nodes, table_, now_);
    }

    /// What an evictable leaf is worth now: expected hits per block-request of residence.
    template <class Nodes>
    [[nodiscard]] double worth(Nodes& nodes, NodeId leaf) noexcept {
        const NodeData& data = nodes.order(leaf);
        return table_.worth(data.block_class, detail::age_bucket(now_ - data.touched));
    }

    [[nodiscard]] std::size_t bytes() const noexcept {
        return history_.bytes() + table_.bytes() + leaves_.bytes();
    }

  private:
    using History = detail::TouchHistory;
    using Segment = History::Segment;
    using Place = History::Place;

    void use_tag(std::uint32_t tag) {
        leaves_.use_classes((tag + 1) * detail::classes_per_tag);
        table_.use_tag(tag);
    }

    // --- History ---

    /// Where a node ends.
    template <class Nodes>
    [[nodiscard]] Place place_of(Nodes& nodes, NodeId node) noexcept {
        NodeData& data = nodes.order(node);
        if (nodes.is_root(node)) return {history_.root(data.touched), 0};
        const std::uint32_t segment = history_.covering(data.segment, data.depth);
        if (segment != data.segment) {
            history_.use(segment);
            history_.release(data.segment);
            data.segment = segment;
        }
        return {segment, data.depth};
    }
    void stop_using(NodeData& data) noexcept {
        if (data.segment != History::none) history_.release(data.segment);
        data.segment = History::none;
    }

    void trim() noexcept {
        while (history_.size() > history_limit_) {
            const std::uint32_t oldest = history_.oldest();
            const Segment& s = history_.at(oldest);
            const std::size_t excess = history_.size() - history_limit_;
            const auto blocks = static_cast<std::uint32_t>(std::min<std::size_t>(s.known, excess));
            table_.leave(s.block_class, s.bucket, s.time, blocks, now_);
            history_.forget(oldest, blocks);
        }
    }
    template <class Key>
    void touch(std::uint32_t segment, std::size_t block_class, std::uint32_t count,
               Key&& key) noexcept {
        history_.touch(segment, now_, block_class, count, key);
        table_.enter(block_class, history_.at(segment).blocks(), now_);
    }

    // --- A request ---

    template <class Nodes, class Info>
    void touch_path(Nodes& nodes, const Info& info, std::uint32_t tag) noexcept {
        const auto end = static_cast<std::uint32_t>(info.path_pages());
        const auto key = [&](std::uint32_t depth) {
            return detail::block_key(info.path.data() + depth * info.page_tokens, info.page_tokens);
        };
        const bool is_matched = info.matched_pages != 0;
        const Place place =
            history_.follow(place_of(nodes, is_matched ? info.node : info.root), end, key);
        std::uint32_t segment = history_.end_at(place);
        const bool is_tail_old = info.hints.partial_tail && place.depth == end;
        if (is_tail_old && history_.at(segment).blocks() > 1) history_.split(segment, end - 1);

        const std::uint32_t known = count_reuses({segment, place.depth});
        const std::size_t first_class = tag * detail::classes_per_tag;
        const std::size_t tail_class = first_class + detail::tail_class;
        const auto class_of = [&](std::uint32_t count) {
            return first_class + (count - 1) * detail::size_groups +
                   detail::size_group(end - known);
        };
        // The deepest first, so that it is the first of the request to be forgotten.
        if (place.depth < end) {
            const bool has_tail = info.hints.partial_tail;
            const std::uint32_t body_end = has_tail ? end - 1 : end;
            std::uint32_t above = segment;
            if (body_end > place.depth) above = history_.add(segment, body_end);
            if (has_tail) touch(history_.add(above, end), tail_class, 1, key);
            if (above != segment) touch(above, class_of(1), 1, key);
        }
        for (std::uint32_t depth = place.depth; depth > 0;) {
            const std::uint32_t known_end = history_.at(segment).known_end();
            std::uint32_t above = history_.at(segment).parent;
            if (history_.at(segment).known != 0 && known_end < depth) {
                above = history_.split(segment, known_end);
            }
            const Segment& s = history_.at(segment);
            const std::uint32_t count =
                s.end > known ? 1 : std::min<std::uint32_t>(s.count + 1u, History::most_counted);
            const bool is_tail = is_tail_old && depth == end;
            depth = s.begin;
            touch(segment, is_tail ? tail_class : class_of(count), count, key);
            segment = above;
        }
    }
    /// Of all known blocks on the path to the end of a segment. Returns how many blocks from the
    /// root on are known.
    [[nodiscard]] std::uint32_t count_reuses(Place end) noexcept {
        std::uint32_t known = end.depth;
        for (std::uint32_t segment = end.segment; history_.at(segment).end != 0;) {
            const Segment& s = history_.at(segment);
            if (s.known != 0) table_.reuse(s.block_class, s.bucket, s.time, s.known, now_);
            if (s.known != s.blocks()) known = s.known_end();
            segment = s.parent;
        }
        return known;
    }

    // --- Leaves ---

    template <class Nodes>
    void insert(Nodes& nodes, NodeId leaf) noexcept {
        const Segment& s = history_.at(place_of(nodes, leaf).segment);
        NodeData& data = nodes.order(leaf);
        data.touched = s.time;
        data.block_class = s.block_class;
        leaves_.put(nodes, leaf, table_, now_);
    }

    History history_;
    detail::HazardTable table_;
    detail::HazardLeaves leaves_;
    std::size_t history_limit_ = 65'536;  // blocks
    double first_prior_ = 1;
    std::uint64_t requests_ = 0;
    std::uint64_t next_rebuild_ = 0;
    std::uint64_t now_ = 0;  // the number of the latest request, from 0
    std::uint32_t serial_ = 0;
};

}  // namespace kvstem
