// SPDX-License-Identifier: MIT
// The evictable leaves by class and bucket of age, and the one of the least worth.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "../config.hpp"
#include "../policy/leaf_heap.hpp"
#include "../radix_tree.hpp"
#include "hazard_table.hpp"
#include "touch_history.hpp"

namespace kvstem::inline KVSTEM_ABI::detail {

/// What a node carries for HazardLeaves.
struct HazardLeaf {
    enum class Place : std::uint8_t { nowhere, queue, heap };

    std::uint64_t touched = 0;                   // of the last page
    std::uint32_t depth = 0;                     // pages from the root to its end
    std::uint32_t serial = 0;                    // of nodes made
    std::uint32_t segment = TouchHistory::none;  // see TouchHistory::covering
    std::uint16_t block_class = 0;
    std::uint8_t bucket = 0;
    Place place = Place::nowhere;
    HeapLinks links;
};

/// Within a cell (a class and a bucket of age) all leaves are worth the same, so only the oldest of
/// them competes. Every cell has its worth at hand, an empty one the highest, and every class
/// the least of its cells: to find the least of all is to look through short arrays of numbers.
///
/// Complexity: `put` and `take_out` O(log n) amortised + O(buckets); `least` O(classes) and, for
/// each leaf that changes its bucket (at most once an octave), O(1), or O(log n) for the few that
/// came out of order; after a rebuild of the table also O(buckets) for each cell with leaves.
/// Exceptions: `use_classes` throws std::bad_alloc with nothing changed.
class HazardLeaves {
  public:
    void use_classes(std::size_t classes) {
        if (classes <= classes_.size()) return;
        cells_.reserve(classes * age_buckets);
        classes_.reserve(classes);
        worths_.reserve((classes + 7) / 8 * 8);
        by_eight_.reserve((classes + 7) / 8);
        due_.reserve(classes);
        cells_.resize(classes * age_buckets);
        classes_.resize(classes);
        worths_.resize((classes + 7) / 8 * 8, highest);
        by_eight_.resize((classes + 7) / 8, highest);
        due_.resize(classes, never);
    }

    /// Requires: `touched`, `block_class` and `depth` are set.
    template <class Nodes>
    void put(Nodes& nodes, NodeId leaf, HazardTable& table, std::uint64_t now) noexcept {
        HazardLeaf& data = nodes.order(leaf);
        enter(nodes, leaf, data, age_bucket(now - data.touched), table);
    }
    template <class Nodes>
    void take_out(Nodes& nodes, NodeId leaf) noexcept {
        leave(nodes, leaf, nodes.order(leaf));
    }

    /// The leaf of the least worth; of equals the one touched the longest ago, then the deepest.
    template <class Nodes>
    [[nodiscard]] NodeId least(Nodes& nodes, HazardTable& table, std::uint64_t now) noexcept {
        if (aged_until_ != now) age(nodes, table, now);
        if (epoch_ != table.epoch()) take_worths(table);
        double least = highest;
        for (std::size_t g = 0; g < by_eight_.size(); ++g) {
            by_eight_[g] = least_of_eight(&worths_[8 * g]);
            least = std::min(least, by_eight_[g]);
        }
        return least == highest ? no_node : oldest_worth(nodes, least);
    }

    [[nodiscard]] std::size_t bytes() const noexcept {
        return cells_.capacity() * sizeof(Cell) + classes_.capacity() * sizeof(Class) +
               (worths_.capacity() + by_eight_.capacity()) * sizeof(double) +
               due_.capacity() * sizeof(std::uint64_t);
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
        std::uint64_t oldest = 0;    // touch of the first
        std::uint64_t youngest = 0;  // an upper bound of the touches in the queue
        NodeId first = no_node;
        NodeId front = no_node;  // of the queue
        NodeId back = no_node;
        LeafHeap<OldestThenDeepest> heap;
    };
    static constexpr std::uint64_t never = ~std::uint64_t{0};
    static constexpr double highest = std::numeric_limits<double>::infinity();
    struct Class {
        std::array<double, age_buckets> worth = all_highest();
        std::uint32_t filled = 0;  // bits of cells with leaves

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

    /// Without branches, which nobody could predict.
    static double least_of_eight(const double* n) noexcept {
        const auto lesser = [](double a, double b) noexcept { return b < a ? b : a; };
        return lesser(lesser(lesser(n[0], n[1]), lesser(n[2], n[3])),
                      lesser(lesser(n[4], n[5]), lesser(n[6], n[7])));
    }
    static double least_of_class(const Class& of) noexcept {
        static_assert(age_buckets == 24);
        return std::min(std::min(least_of_eight(&of.worth[0]), least_of_eight(&of.worth[8])),
                        least_of_eight(&of.worth[16]));
    }
    /// Of the leaves that are worth so much, which almost always is one. Requires: `by_eight_` is
    /// right.
    template <class Nodes>
    [[nodiscard]] NodeId oldest_worth(Nodes& nodes, double worth) noexcept {
        NodeId best = no_node;
        for (std::size_t g = 0; g < by_eight_.size(); ++g) {
            if (by_eight_[g] != worth) continue;
            for (std::size_t c = 8 * g; c < 8 * g + 8; ++c) {
                if (worths_[c] != worth) continue;
                for (std::uint32_t left = classes_[c].filled; left != 0; left &= left - 1) {
                    const auto b = static_cast<std::size_t>(std::countr_zero(left));
                    if (classes_[c].worth[b] != worth) continue;
                    const NodeId leaf = cells_[c * age_buckets + b].first;
                    if (best == no_node || before(nodes, leaf, best)) best = leaf;
                }
            }
        }
        return best;
    }

    template <class Nodes>
    void enter(Nodes& nodes, NodeId leaf, HazardLeaf& data, std::size_t bucket,
               HazardTable& table) noexcept {
        const std::size_t c = data.block_class;
        data.bucket = static_cast<std::uint8_t>(bucket);
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
            classes_[c].filled |= 1u << bucket;
            const double worth = table.worth(c, bucket);
            classes_[c].worth[bucket] = worth;
            worths_[c] = std::min(worths_[c], worth);
        } else if (cell.oldest < data.touched || !before(nodes, leaf, cell.first)) {
            return;
        }
        cell.first = leaf;
        cell.oldest = data.touched;
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
            cell.oldest = nodes.order(cell.first).touched;
            return;
        }
        Class& of = classes_[data.block_class];
        of.filled &= ~(1u << data.bucket);
        of.worth[data.bucket] = highest;
        worths_[data.block_class] = least_of_class(of);
    }
    void note_due(std::size_t block_class, std::size_t bucket) noexcept {
        if (bucket + 1 == age_buckets) return;
        const Cell& cell = cells_[block_class * age_buckets + bucket];
        std::uint64_t& due = due_[block_class];
        due = std::min(due, cell.oldest + bucket_begin(bucket + 1));
    }

    /// Leaves whose age has crossed an edge change cells, the oldest of each cell first.
    template <class Nodes>
    void age(Nodes& nodes, HazardTable& table, std::uint64_t now) noexcept {
        aged_until_ = now;
        for (std::size_t c = 0; c < due_.size(); ++c) {
            if (due_[c] <= now) age_class(nodes, c, table, now);
        }
    }
    template <class Nodes>
    void age_class(Nodes& nodes, std::size_t block_class, HazardTable& table,
                   std::uint64_t now) noexcept {
        due_[block_class] = never;
        // From old to young: what has moved is not looked at again.
        for (std::uint32_t left = classes_[block_class].filled; left != 0;) {
            const auto b = static_cast<std::size_t>(std::bit_width(left)) - 1;
            left &= ~(1u << b);
            if (b + 1 == age_buckets) continue;
            Cell& cell = cells_[block_class * age_buckets + b];
            while (cell.first != no_node && now - cell.oldest >= bucket_begin(b + 1)) {
                const NodeId leaf = cell.first;
                HazardLeaf& data = nodes.order(leaf);
                leave(nodes, leaf, data);
                enter(nodes, leaf, data, age_bucket(now - data.touched), table);
            }
            if (cell.first != no_node) note_due(block_class, b);
        }
    }
    void take_worths(HazardTable& table) noexcept {
        epoch_ = table.epoch();
        for (std::size_t c = 0; c < classes_.size(); ++c) {
            Class& of = classes_[c];
            for (std::uint32_t left = of.filled; left != 0; left &= left - 1) {
                const auto b = static_cast<std::size_t>(std::countr_zero(left));
                of.worth[b] = table.worth(c, b);
            }
            worths_[c] = least_of_class(of);
        }
    }

    std::vector<Cell> cells_;  // of class c those from c × age_buckets on
    std::vector<Class> classes_;
    std::vector<double> worths_;      // by class: the least of its cells
    std::vector<double> by_eight_;    // the least of each eight of these
    std::vector<std::uint64_t> due_;  // by class: before then no leaf changes its bucket
    std::uint64_t aged_until_ = never;
    std::uint64_t epoch_ = 0;  // of the table, from which the worths are
};

}  // namespace kvstem
