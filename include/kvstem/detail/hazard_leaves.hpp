// SPDX-License-Identifier: MIT
// The evictable leaves by class and bucket of age, and the one of the least worth.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
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
/// them competes. Every cell has its worth at hand, an empty one the highest, every class the least
/// of its cells, and every eight classes the least of theirs: to find the least of all is to look
/// through a short array of numbers. When the oldest leaf of a cell will change it is known before,
/// too: of each of the next requests there is a bit for every cell to be looked at then.
///
/// Complexity: `put` and `take_out` O(log n) amortised + O(buckets); `least` O(classes) and, for
/// each leaf that changes its bucket (at most once an octave), O(1), or O(log n) for the few that
/// came out of order; after a rebuild of the table also O(buckets) for each cell with leaves, and
/// every `period` requests O(1) for each. Exceptions: `use_classes` throws std::bad_alloc with
/// nothing changed.
class HazardLeaves {
  public:
    void use_classes(std::size_t classes) {
        if (classes <= classes_.size()) return;
        const std::size_t due_words = (classes * age_buckets + 63) / 64;
        cells_.reserve(classes * age_buckets);
        classes_.reserve(classes);
        worths_.reserve((classes + 7) / 8 * 8);
        by_eight_.reserve((classes + 7) / 8);
        due_.reserve(period * due_words);
        cells_.resize(classes * age_buckets);
        classes_.resize(classes);
        worths_.resize((classes + 7) / 8 * 8, highest);
        by_eight_.resize((classes + 7) / 8, highest);
        due_.assign(period * due_words, 0);
        due_words_ = due_words;
        look_at_all_ = 0;  // at once
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
        age(nodes, table, now);
        if (epoch_ != table.epoch()) take_worths(table);
        double least = highest;
        for (const double each : by_eight_) least = lesser(least, each);
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
        std::uint64_t youngest = 0;  // an upper bound of the touches in the queue
        NodeId first = no_node;
        NodeId front = no_node;  // of the queue
        NodeId back = no_node;
        LeafHeap<OldestThenDeepest> heap;
    };
    static constexpr std::uint64_t period = 16;  // requests from one look at all cells to the next
    static constexpr double highest = std::numeric_limits<double>::infinity();
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

    /// Without a branch, which nobody could predict.
    static double lesser(double a, double b) noexcept { return b < a ? b : a; }
    static double least_of_eight(const double* n) noexcept {
        return lesser(lesser(lesser(n[0], n[1]), lesser(n[2], n[3])),
                      lesser(lesser(n[4], n[5]), lesser(n[6], n[7])));
    }
    static double least_of_class(const Class& of) noexcept {
        static_assert(age_buckets == 24);
        return lesser(lesser(least_of_eight(&of.worth[0]), least_of_eight(&of.worth[8])),
                      least_of_eight(&of.worth[16]));
    }
    void lose_worth(std::size_t block_class, std::size_t bucket) noexcept {
        Class& of = classes_[block_class];
        const double lost = std::exchange(of.worth[bucket], highest);
        if (lost != worths_[block_class]) return;
        worths_[block_class] = least_of_class(of);
        by_eight_[block_class / 8] = least_of_eight(&worths_[block_class / 8 * 8]);
    }
    /// Of the leaves that are worth so much, which almost always is one.
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
            worths_[c] = lesser(worths_[c], worth);
            by_eight_[c / 8] = lesser(by_eight_[c / 8], worth);
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

    // --- Ageing ---

    /// Notes when the first leaf of a cell changes it, if that is before the next full look.
    void note_due(std::size_t block_class, std::size_t bucket) noexcept {
        if (bucket + 1 == age_buckets) return;
        const std::uint64_t due = classes_[block_class].oldest[bucket] + bucket_begin(bucket + 1);
        if (due >= look_at_all_) return;
        const std::size_t cell = block_class * age_buckets + bucket;
        due_[due % period * due_words_ + cell / 64] |= std::uint64_t{1} << cell % 64;
    }
    /// Leaves whose age has crossed an edge change cells, the oldest of each cell first.
    template <class Nodes>
    void age(Nodes& nodes, HazardTable& table, std::uint64_t now) noexcept {
        if (now >= look_at_all_) return age_all(nodes, table, now);
        while (aged_until_ != now) {
            std::uint64_t* due = &due_[++aged_until_ % period * due_words_];
            for (std::size_t w = 0; w < due_words_; ++w) {
                for (std::uint64_t left = std::exchange(due[w], 0); left != 0; left &= left - 1) {
                    const std::size_t cell =
                        64 * w + static_cast<std::size_t>(std::countr_zero(left));
                    age_cell(nodes, cell / age_buckets, cell % age_buckets, table, now);
                }
            }
        }
    }
    template <class Nodes>
    void age_all(Nodes& nodes, HazardTable& table, std::uint64_t now) noexcept {
        aged_until_ = now;
        look_at_all_ = (now / period + 1) * period;
        std::fill(due_.begin(), due_.end(), 0);
        for (std::size_t c = 0; c < classes_.size(); ++c) {
            // From old to young: what has moved is not looked at again.
            for (std::uint32_t left = classes_[c].filled; left != 0;) {
                const auto b = static_cast<std::size_t>(std::bit_width(left)) - 1;
                left &= ~(1u << b);
                age_cell(nodes, c, b, table, now);
            }
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
            for (std::uint32_t left = of.filled; left != 0; left &= left - 1) {
                const auto b = static_cast<std::size_t>(std::countr_zero(left));
                of.worth[b] = table.worth(c, b);
            }
            worths_[c] = least_of_class(of);
        }
        for (std::size_t g = 0; g < by_eight_.size(); ++g) {
            by_eight_[g] = least_of_eight(&worths_[8 * g]);
        }
    }

    std::vector<Cell> cells_;  // of class c those from c × age_buckets on
    std::vector<Class> classes_;
    std::vector<double> worths_;    // by class: the least of its cells
    std::vector<double> by_eight_;  // the least of each eight of these
    // For each request until the next look at all cells: bits of the cells whose first leaf may
    // have to change its cell then.
    std::vector<std::uint64_t> due_;
    std::size_t due_words_ = 0;      // of each of these requests
    std::uint64_t look_at_all_ = 0;  // at this request
    std::uint64_t aged_until_ = 0;
    std::uint64_t epoch_ = 0;  // of the table, from which the worths are
};

}  // namespace kvstem
