// SPDX-License-Identifier: MIT
// The evictable leaves by class and bucket of age, and the one of the least worth.
#pragma once

#include <algorithm>
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
    std::uint64_t touched = 0;  // of the last page
    std::uint32_t depth = 0;    // pages from the root to its end
    std::uint32_t serial = 0;   // of nodes made
    std::uint32_t alike = 0;  // last pages that were touched with the last one and share its class
    std::uint16_t block_class = 0;
    std::uint16_t bucket = 0;
    HeapLinks heap;
};

/// Within a cell (a class and a bucket) all leaves are worth the same, so only the oldest one of
/// each competes; of each class the best of its cells is remembered until something in the class
/// changes.
///
/// Complexity: `put` and `take_out` O(log n) amortised; `least` O(classes), O(buckets) for each
/// class that has changed, and O(1) amortised for each leaf that changes its bucket, which it does
/// once an octave. Exceptions: `use_classes` throws std::bad_alloc with nothing changed.
class HazardLeaves {
  public:
    void use_classes(std::size_t classes) {
        if (classes <= classes_.size()) return;
        cells_.reserve(classes * age_buckets);
        classes_.reserve(classes);
        due_.reserve(classes);
        changed_.reserve(classes);
        cells_.resize(classes * age_buckets);
        classes_.resize(classes);
        due_.resize(classes, never);
    }

    /// Requires: `touched`, `block_class` and `depth` are set.
    template <class Nodes>
    void put(Nodes& nodes, NodeId leaf, std::uint64_t now) noexcept {
        HazardLeaf& data = nodes.order(leaf);
        const std::size_t bucket = age_bucket(now - data.touched);
        data.bucket = static_cast<std::uint16_t>(bucket);
        Cell& cell = cell_of(data);
        cell.heap.insert(nodes, leaf);
        if (cell.heap.top() == leaf) {
            cell.oldest = data.touched;
            classes_[data.block_class].filled |= 1u << bucket;
            note_change(data.block_class);
        }
        if (bucket + 1 == age_buckets) return;
        std::uint64_t& due = due_[data.block_class];
        due = std::min(due, data.touched + bucket_begin(bucket + 1));
    }
    template <class Nodes>
    void take_out(Nodes& nodes, NodeId leaf) noexcept {
        const HazardLeaf& data = nodes.order(leaf);
        Cell& cell = cell_of(data);
        const bool is_first = cell.heap.top() == leaf;
        cell.heap.remove(nodes, leaf);
        if (!is_first) return;
        Class& of = classes_[data.block_class];
        if (of.best == leaf) note_change(data.block_class);
        if (cell.heap.empty()) {
            of.filled &= ~(1u << data.bucket);
        } else {
            cell.oldest = nodes.order(cell.heap.top()).touched;
        }
    }

    /// The leaf of the least worth; of equals the one touched the longest ago, then the deepest.
    template <class Nodes>
    [[nodiscard]] NodeId least(Nodes& nodes, HazardTable& table, std::uint64_t now) noexcept {
        if (aged_until_ != now) age(nodes, now);
        if (epoch_ == table.epoch()) {
            // Most often the next victim is of the class that the last one was of, or of its
            // parent's.
            const Class* best = nullptr;
            for (const std::uint16_t c : changed_) {
                Class& of = classes_[c];
                if (of.changed) choose(nodes, table, c);
                if (of.filled != 0 && (best == nullptr || goes_before(nodes, of, *best)))
                    best = &of;
            }
            if (best != nullptr && best->worth < others_) return best->best;
        }
        return least_of_all(nodes, table);
    }

    [[nodiscard]] std::size_t bytes() const noexcept {
        return cells_.capacity() * sizeof(Cell) + classes_.capacity() * sizeof(Class) +
               due_.capacity() * sizeof(std::uint64_t) +
               changed_.capacity() * sizeof(std::uint16_t);
    }

  private:
    struct OldestThenDeepest {
        static bool before(const HazardLeaf& a, const HazardLeaf& b) noexcept {
            if (a.touched != b.touched) return a.touched < b.touched;
            if (a.depth != b.depth) return a.depth > b.depth;
            return a.serial < b.serial;
        }
        static HeapLinks& links(HazardLeaf& at) noexcept { return at.heap; }
    };
    struct Cell {
        LeafHeap<OldestThenDeepest> heap;
        std::uint64_t oldest = 0;  // touch of the first
    };
    struct Class {
        double worth = 0;          // of `best`, unless `changed`
        std::uint32_t filled = 0;  // bits of cells with leaves
        NodeId best = no_node;
        bool changed = false;
        bool is_listed = false;  // in `changed_`
    };
    static constexpr std::uint64_t never = ~std::uint64_t{0};

    [[nodiscard]] Cell& cell_of(const HazardLeaf& data) noexcept {
        return cells_[data.block_class * age_buckets + data.bucket];
    }
    void note_change(std::uint16_t block_class) noexcept {
        Class& of = classes_[block_class];
        of.changed = true;
        if (of.is_listed) return;
        of.is_listed = true;
        changed_.push_back(block_class);  // reserved: at most one for each class
    }
    template <class Nodes>
    static bool before(Nodes& nodes, NodeId a, NodeId b) noexcept {
        return OldestThenDeepest::before(nodes.order(a), nodes.order(b));
    }

    template <class Nodes>
    static bool goes_before(Nodes& nodes, const Class& a, const Class& b) noexcept {
        return a.worth < b.worth || (a.worth == b.worth && before(nodes, a.best, b.best));
    }

    template <class Nodes>
    void choose(Nodes& nodes, HazardTable& table, std::size_t block_class) noexcept {
        Class& of = classes_[block_class];
        of.best = no_node;
        of.changed = false;
        for (std::uint32_t left = of.filled; left != 0; left &= left - 1) {
            const auto b = static_cast<std::size_t>(std::countr_zero(left));
            const NodeId leaf = cells_[block_class * age_buckets + b].heap.top();
            const double worth = table.worth(block_class, b);
            if (of.best == no_node || worth < of.worth ||
                (worth == of.worth && before(nodes, leaf, of.best))) {
                of.best = leaf;
                of.worth = worth;
            }
        }
    }

    template <class Nodes>
    [[nodiscard]] NodeId least_of_all(Nodes& nodes, HazardTable& table) noexcept {
        const bool other_worths = epoch_ != table.epoch();
        epoch_ = table.epoch();
        const Class* best = nullptr;
        others_ = std::numeric_limits<double>::infinity();
        std::size_t best_class = 0;
        for (std::size_t c = 0; c < classes_.size(); ++c) {
            Class& of = classes_[c];
            if (of.filled == 0) continue;
            if (of.changed || other_worths) choose(nodes, table, c);
            if (best == nullptr || goes_before(nodes, of, *best)) {
                if (best != nullptr) others_ = best->worth;  // the least so far
                best = &of;
                best_class = c;
            } else {
                others_ = std::min(others_, of.worth);
            }
        }
        for (const std::uint16_t c : changed_) classes_[c].is_listed = false;
        changed_.clear();
        if (best == nullptr) return no_node;
        note_change(static_cast<std::uint16_t>(best_class));
        return best->best;
    }

    /// Leaves whose age has crossed an edge change cells, the oldest of each cell first.
    template <class Nodes>
    void age(Nodes& nodes, std::uint64_t now) noexcept {
        aged_until_ = now;
        for (std::size_t c = 0; c < classes_.size(); ++c) {
            if (due_[c] <= now) age_class(nodes, c, now);
        }
    }
    template <class Nodes>
    void age_class(Nodes& nodes, std::size_t block_class, std::uint64_t now) noexcept {
        due_[block_class] = never;
        // From old to young: what has moved is not looked at again.
        for (std::uint32_t left = classes_[block_class].filled; left != 0;) {
            const auto b = static_cast<std::size_t>(std::bit_width(left)) - 1;
            left &= ~(1u << b);
            if (b + 1 == age_buckets) continue;
            Cell& cell = cells_[block_class * age_buckets + b];
            while (!cell.heap.empty() && now - cell.oldest >= bucket_begin(b + 1)) {
                const NodeId leaf = cell.heap.top();
                take_out(nodes, leaf);
                put(nodes, leaf, now);
            }
            if (cell.heap.empty()) continue;
            std::uint64_t& due = due_[block_class];
            due = std::min(due, cell.oldest + bucket_begin(b + 1));
        }
    }

    std::vector<Cell> cells_;  // of class c those from c × age_buckets on
    std::vector<Class> classes_;
    std::vector<std::uint64_t> due_;  // by class: before then no leaf changes its bucket
    // Classes that may hold another least leaf than when all were compared last, and what all other
    // classes are worth at the least.
    std::vector<std::uint16_t> changed_;
    double others_ = 0;
    std::uint64_t aged_until_ = ~std::uint64_t{0};
    std::uint64_t epoch_ = 0;
};

}  // namespace kvstem
