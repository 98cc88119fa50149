// SPDX-License-Identifier: MIT
// The evictable leaves by class and bucket of age, and the one of the least worth.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "../config.hpp"
#include "../policy/leaf_heap.hpp"
#include "../radix_tree.hpp"
#include "hazard_table.hpp"
#include "least_number.hpp"
#include "touch_history.hpp"

namespace kvstem::inline KVSTEM_ABI::detail {

/// What a node carries for HazardLeaves.
struct HazardLeaf {
    enum class Place : std::uint8_t { nowhere, young, queue, heap };

    std::uint64_t touched = 0;                   // of the last page
    std::uint32_t depth = 0;                     // pages from the root to its end
    std::uint32_t serial = 0;                    // of nodes made
    std::uint32_t segment = TouchHistory::none;  // see TouchHistory::covering
    std::uint16_t block_class = 0;
    std::uint8_t bucket = 0;  // its cell's; not of a young one
    Place place = Place::nowhere;
    HeapLinks links;
};

/// Finds the leaf of the least worth, which is a matter of class and bucket of age. What is old and
/// what is young stand apart:
///
///   - Within a cell (a class and a bucket) all leaves are worth the same, so only the oldest of
///     them competes. Every cell has its worth at hand, and every class the least of its cells.
///     When the oldest leaf of a cell will change it is known before: of each of the next requests
///     there is a bit for every class to be looked at then.
///   - In its first `young_age` requests a leaf crosses half of all edges it will ever cross. Of a
///     request's path only one node is a leaf. So the leaves of the latest requests stand in a row,
///     each at the place of its request, with its worth: to cross an edge is to get another one. A
///     leaf whose place is taken goes to its cell at once: by another answer published at that
///     time, or by an older leaf, as long as nobody has asked for the least since.
///
/// To find the least of all is to look through a short array of numbers.
///
/// Complexity: `put` and `take_out` O(log n) amortised + O(buckets); `least` O(classes + young_age)
/// and, for each leaf that changes its bucket (at most once an octave), O(1), or O(log n) for the
/// few that came out of order; after a rebuild of the table also O(buckets) for each cell with
/// leaves, and every `period` requests O(1) for each. Exceptions: `use_classes` throws
/// std::bad_alloc with nothing changed.
class HazardLeaves {
  public:
    void use_classes(std::size_t classes) {
        if (classes <= classes_.size()) return;
        const std::size_t due_words = (classes + 63) / 64;
        cells_.reserve(classes * age_buckets);
        classes_.reserve(classes);
        worths_.resize(young_age + classes);
        due_.reserve(period * due_words);
        cells_.resize(classes * age_buckets);
        classes_.resize(classes);
        due_.assign(period * due_words, 0);
        due_words_ = due_words;
        look_at_all_ = 0;  // at once
    }

    /// Requires: `touched`, `block_class` and `depth` are set.
    template <class Nodes>
    void put(Nodes& nodes, NodeId leaf, HazardTable& table, std::uint64_t now) noexcept {
        HazardLeaf& data = nodes.order(leaf);
        if (!enter_young(leaf, data, table, now)) {
            enter(nodes, leaf, data, age_bucket(now - data.touched), table);
        }
    }
    template <class Nodes>
    void take_out(Nodes& nodes, NodeId leaf) noexcept {
        HazardLeaf& data = nodes.order(leaf);
        if (data.place != HazardLeaf::Place::young) return leave(nodes, leaf, data);
        leave_young(young_place(data));
        data.place = HazardLeaf::Place::nowhere;
    }

    /// The leaf of the least worth; of equals the one touched the longest ago, then the deepest.
    template <class Nodes>
    [[nodiscard]] NodeId least(Nodes& nodes, HazardTable& table, std::uint64_t now) noexcept {
        age(nodes, table, now);
        if (epoch_ != table.epoch()) take_worths(table);
        const double least = worths_.least();
        return least == highest ? no_node : oldest_worth(nodes, least);
    }

    [[nodiscard]] std::size_t bytes() const noexcept {
        return cells_.capacity() * sizeof(Cell) + classes_.capacity() * sizeof(Class) +
               worths_.bytes() + due_.capacity() * sizeof(std::uint64_t);
    }

  private:
    struct OldestThenDeepest {
        static bool before(const HazardLeaf& a, const HazardLeaf& b) noexcept {
            if (a.touched != b.touched) return a.touched < b.touched;
            if (a.depth != b.depth) return a.depth > b.depth;
            return a.serial < b.serial;
        }
        static HeapLinks& links(HazardLeaf& at) noexcept { return at.links; }
    };
    /// Nearly all leaves come in their order, most of them from the bucket before: they queue up.
    /// The others are in the heap.
    struct Cell {
        std::uint64_t youngest = 0;  // an upper bound of the touches in the queue
        NodeId first = no_node;
        NodeId front = no_node;  // of the queue
        NodeId back = no_node;
        LeafHeap<OldestThenDeepest> heap;
    };
    static constexpr std::uint64_t period = 16;  // requests from one look at all cells to the next
    static constexpr double highest = LeastNumber::highest;
    static constexpr std::uint64_t young_age = 64;  // requests: bits of a word
    struct Young {
        std::uint64_t touched = 0;
        NodeId leaf = no_node;
        std::uint16_t block_class = 0;
    };
    struct Class {
        std::array<double, age_buckets> worth = all_highest();
        std::array<std::uint64_t, age_buckets> oldest{};  // touch of the first of each cell
        std::uint32_t filled = 0;                         // bits of cells with leaves

        static constexpr std::array<double, age_buckets> all_highest() noexcept {
            std::array<double, age_buckets> worth{};
            for (double& each : worth) each = highest;
            return worth;
        }
    };

    [[nodiscard]] Cell& cell_of(const HazardLeaf& data) noexcept {
        return cells_[data.block_class * age_buckets + data.bucket];
    }
    template <class Nodes>
    static bool before(Nodes& nodes, NodeId a, NodeId b) noexcept {
        return OldestThenDeepest::before(nodes.order(a), nodes.order(b));
    }

    static double least_of_class(const Class& of) noexcept {
        static_assert(age_buckets == 24);
        return lesser(lesser(least_of_eight(&of.worth[0]), least_of_eight(&of.worth[8])),
                      least_of_eight(&of.worth[16]));
    }
    void lose_worth(std::size_t block_class, std::size_t bucket) noexcept {
        Class& of = classes_[block_class];
        const double lost = std::exchange(of.worth[bucket], highest);
        if (lost == worths_[young_age + block_class]) {
            worths_.set(young_age + block_class, least_of_class(of));
        }
    }
    /// Bits of the cells of a class that are worth so much.
    static std::uint32_t cells_worth(const Class& of, double worth) noexcept {
        return equal_of_eight(&of.worth[0], worth) | equal_of_eight(&of.worth[8], worth) << 8 |
               equal_of_eight(&of.worth[16], worth) << 16;
    }
    /// Of the leaves that are worth so much, which almost always is one.
    template <class Nodes>
    [[nodiscard]] NodeId oldest_worth(Nodes& nodes, double worth) noexcept {
        NodeId best = no_node;
        const auto compete = [&](NodeId leaf) {
            if (best == no_node || before(nodes, leaf, best)) best = leaf;
        };
        worths_.for_each(worth, [&](std::size_t at) {
            if (at < young_age) return compete(young_[at].leaf);
            const std::size_t c = at - young_age;
            for_each_bit(cells_worth(classes_[c], worth),
                         [&](std::size_t b) { compete(cells_[c * age_buckets + b].first); });
        });
        return best;
    }

    template <class Nodes>
    void enter(Nodes& nodes, NodeId leaf, HazardLeaf& data, std::size_t bucket,
               HazardTable& table) noexcept {
        const std::size_t c = data.block_class;
        data.bucket = static_cast<std::uint8_t>(bucket);
        Class& of = classes_[c];
        Cell& cell = cell_of(data);
        const bool queues =
            cell.back == no_node || cell.youngest < data.touched || before(nodes, cell.back, leaf);
        if (queues) {
            data.place = HazardLeaf::Place::queue;
            data.links.previous = cell.back;
            data.links.next = no_node;
            (cell.back != no_node ? nodes.order(cell.back).links.next : cell.front) = leaf;
            cell.back = leaf;
            cell.youngest = data.touched;
        } else {
            data.place = HazardLeaf::Place::heap;
            cell.heap.insert(nodes, leaf);
        }
        if (cell.first == no_node) {
            of.filled |= 1u << bucket;
            const double worth = table.worth(c, bucket);
            of.worth[bucket] = worth;
            worths_.lower(young_age + c, worth);
        } else if (of.oldest[bucket] < data.touched || !before(nodes, leaf, cell.first)) {
            return;
        }
        cell.first = leaf;
        of.oldest[bucket] = data.touched;
        note_due(c, bucket);
    }
    template <class Nodes>
    void leave(Nodes& nodes, NodeId leaf, HazardLeaf& data) noexcept {
        Cell& cell = cell_of(data);
        if (data.place == HazardLeaf::Place::heap) {
            cell.heap.remove(nodes, leaf);
        } else {
            const NodeId previous = data.links.previous;
            const NodeId next = data.links.next;
            (previous != no_node ? nodes.order(previous).links.next : cell.front) = next;
            (next != no_node ? nodes.order(next).links.previous : cell.back) = previous;
        }
        data.place = HazardLeaf::Place::nowhere;
        if (cell.first != leaf) return;
        cell.first = cell.front;
        const NodeId top = cell.heap.top();
        if (top != no_node && (cell.first == no_node || before(nodes, top, cell.first))) {
            cell.first = top;
        }
        if (cell.first != no_node) {
            classes_[data.block_class].oldest[data.bucket] = nodes.order(cell.first).touched;
            return;
        }
        classes_[data.block_class].filled &= ~(1u << data.bucket);
        lose_worth(data.block_class, data.bucket);
    }

    // --- The young ---

    static constexpr std::uint64_t bit(std::uint64_t at) noexcept { return std::uint64_t{1} << at; }
    static std::size_t young_place(const HazardLeaf& data) noexcept {
        return static_cast<std::size_t>(data.touched % young_age);
    }
    /// Of the places of the young, those whose age has crossed an edge at this request.
    static constexpr std::uint64_t crossing(std::uint64_t now) noexcept {
        std::uint64_t places = 0;
        for (std::uint64_t age = 1; age <= young_age; age *= 2) {
            places |= bit((now - age) % young_age);
        }
        return places;
    }

    bool enter_young(NodeId leaf, HazardLeaf& data, HazardTable& table,
                     std::uint64_t now) noexcept {
        const std::size_t at = young_place(data);
        if (now - data.touched >= young_age || (are_young_ & bit(at)) != 0) return false;
        are_young_ |= bit(at);
        young_[at] = {data.touched, leaf, data.block_class};
        data.place = HazardLeaf::Place::young;
        worths_.lower(at, table.worth(data.block_class, age_bucket(now - data.touched)));
        return true;
    }
    void leave_young(std::size_t at) noexcept {
        are_young_ &= ~bit(at);
        worths_.set(at, highest);
    }
    template <class Nodes>
    void age_young(Nodes& nodes, HazardTable& table, std::uint64_t now,
                   std::uint64_t places) noexcept {
        for_each_bit(are_young_ & places, [&](std::size_t at) {
            const Young young = young_[at];
            const std::uint64_t age = now - young.touched;
            if (age < young_age) {
                return worths_.set(at, table.worth(young.block_class, age_bucket(age)));
            }
            leave_young(at);
            enter(nodes, young.leaf, nodes.order(young.leaf), age_bucket(age), table);
        });
    }

    // --- Ageing ---

    /// Notes when the first leaf of a cell changes it, if that is before the next full look.
    void note_due(std::size_t block_class, std::size_t bucket) noexcept {
        if (bucket + 1 == age_buckets) return;
        const std::uint64_t due = classes_[block_class].oldest[bucket] + bucket_begin(bucket + 1);
        if (due >= look_at_all_) return;
        due_[due % period * due_words_ + block_class / 64] |= std::uint64_t{1} << block_class % 64;
    }
    /// Leaves whose age has crossed an edge change cells, the oldest of each cell first.
    template <class Nodes>
    void age(Nodes& nodes, HazardTable& table, std::uint64_t now) noexcept {
        if (epoch_ != table.epoch() || now - aged_until_ > 1) {
            age_young(nodes, table, now, ~std::uint64_t{0});
        } else if (now != aged_until_) {
            age_young(nodes, table, now, crossing(now));
        }
        if (now >= look_at_all_) return age_all(nodes, table, now);
        while (aged_until_ != now) {
            std::uint64_t* due = &due_[++aged_until_ % period * due_words_];
            for (std::size_t w = 0; w < due_words_; ++w) {
                for_each_bit(std::exchange(due[w], 0),
                             [&](std::size_t c) { age_class(nodes, 64 * w + c, table, now); });
            }
        }
    }
    template <class Nodes>
    void age_all(Nodes& nodes, HazardTable& table, std::uint64_t now) noexcept {
        aged_until_ = now;
        look_at_all_ = (now / period + 1) * period;
        std::fill(due_.begin(), due_.end(), 0);
        for (std::size_t c = 0; c < classes_.size(); ++c) {
            age_class(nodes, c, table, now);
        }
    }
    template <class Nodes>
    void age_class(Nodes& nodes, std::size_t block_class, HazardTable& table,
                   std::uint64_t now) noexcept {
        // From old to young: what has moved is not looked at again.
        for (std::uint32_t left = classes_[block_class].filled; left != 0;) {
            const auto b = static_cast<std::size_t>(std::bit_width(left)) - 1;
            left &= ~(1u << b);
            age_cell(nodes, block_class, b, table, now);
        }
    }
    template <class Nodes>
    void age_cell(Nodes& nodes, std::size_t block_class, std::size_t bucket, HazardTable& table,
                  std::uint64_t now) noexcept {
        if (bucket + 1 == age_buckets) return;
        const Class& of = classes_[block_class];
        const std::uint64_t width = bucket_begin(bucket + 1);
        const std::uint32_t bit = 1u << bucket;
        while ((of.filled & bit) != 0 && now - of.oldest[bucket] >= width) {
            const NodeId leaf = cells_[block_class * age_buckets + bucket].first;
            HazardLeaf& data = nodes.order(leaf);
            leave(nodes, leaf, data);
            enter(nodes, leaf, data, age_bucket(now - data.touched), table);
        }
        if ((of.filled & bit) != 0) note_due(block_class, bucket);
    }
    void take_worths(HazardTable& table) noexcept {
        epoch_ = table.epoch();
        for (std::size_t c = 0; c < classes_.size(); ++c) {
            Class& of = classes_[c];
            for_each_bit(of.filled, [&](std::size_t b) { of.worth[b] = table.worth(c, b); });
            worths_.set(young_age + c, least_of_class(of));
        }
    }

    std::vector<Cell> cells_;  // of class c those from c × age_buckets on
    std::vector<Class> classes_;
    std::array<Young, young_age> young_{};
    std::uint64_t are_young_ = 0;  // bits of the places with a leaf
    LeastNumber worths_;           // of each young leaf; then of each class the least of its cells
    // For each request until the next look at all cells: bits of the classes in which the first
    // leaf of a cell may have to change it then.
    std::vector<std::uint64_t> due_;
    std::size_t due_words_ = 0;      // of each of these requests
    std::uint64_t look_at_all_ = 0;  // at this request
    std::uint64_t aged_until_ = 0;
    std::uint64_t epoch_ = 0;  // of the table, from which the worths are
};

}  // namespace kvstem
