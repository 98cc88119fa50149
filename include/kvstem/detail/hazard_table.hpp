// SPDX-License-Identifier: MIT
// What hazard has learned: how often blocks of each class are re-used at each age, and what that
// makes them worth.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "../config.hpp"
#include "touch_history.hpp"

namespace kvstem::inline KVSTEM_ABI::detail {

/// Classes of one tag: 4 counts × 16 sizes, and one for partial last blocks.
inline constexpr std::size_t count_groups = 4;
inline constexpr std::size_t size_groups = 16;
inline constexpr std::size_t tail_class = count_groups * size_groups;
inline constexpr std::size_t classes_per_tag = tail_class + 1;

/// The size group of a request with so many new blocks.
constexpr std::size_t size_group(std::size_t new_blocks) noexcept {
    if (new_blocks == 0) return 0;
    const auto octave = static_cast<std::size_t>(std::bit_width(new_blocks)) - 1;
    return 1 + (octave < size_groups - 2 ? octave : size_groups - 2);
}

/// Counts re-uses and exposure (in block-requests) for each class and bucket of age, and says what
/// a block is worth by them. Classes of the first tag come first, then those of the next.
///
/// The same bits everywhere, if multiplications and additions are not fused: where the processor
/// has fused ones, compile with -ffp-contract=off. The math library is not called. Complexity: all
/// calls O(1) and a step for each bucket passed, but `rebuild` O(classes × buckets), and the first
/// `worth` of each class and bucket after it O(buckets). Exceptions: `use_tag` throws
/// std::bad_alloc with nothing changed.
class HazardTable {
  public:
    using ByBucket = std::array<double, age_buckets>;

    void use_tag(std::size_t tag) {
        if (tag < by_tag_.size()) return;
        rows_.reserve((tag + 1) * classes_per_tag);
        // Until the next rebuild what is known of a new tag is what is known of all.
        by_tag_.resize(tag + 1, Sums{pooled_, {}});
        rows_.resize((tag + 1) * classes_per_tag);
    }
    /// Changes with each `rebuild`.
    [[nodiscard]] std::uint64_t epoch() const noexcept { return epoch_; }

    /// So many blocks of a class are touched at `now`: they come into bucket 0.
    void enter(std::size_t block_class, std::uint32_t blocks, std::uint64_t now) noexcept {
        Row& row = rows_[block_class];
        row.come(0, blocks, now);
        row.is_used = true;
    }
    /// So many blocks, touched at `time`, go on from a bucket to a later one.
    void cross(std::size_t block_class, std::size_t from, std::size_t to, std::uint64_t time,
               std::uint32_t blocks) noexcept {
        Row& row = rows_[block_class];
        while (from < to) {
            ++from;
            row.come(from, blocks, time + bucket_begin(from));
        }
    }
    /// So many blocks, touched at `time`, are forgotten. The bucket in which they stand may lie
    /// behind their age.
    void leave(std::size_t block_class, std::size_t bucket, std::uint64_t time,
               std::uint32_t blocks, std::uint64_t now) noexcept {
        const std::size_t last = age_bucket(now - time);
        cross(block_class, bucket, last, time, blocks);
        rows_[block_class].go(last, blocks, now);
    }
    /// The same, because they are used again.
    void reuse(std::size_t block_class, std::size_t bucket, std::uint64_t time,
               std::uint32_t blocks, std::uint64_t now) noexcept {
        leave(block_class, bucket, time, blocks, now);
        rows_[block_class].counts[age_bucket(now - time)].reuses += blocks;
    }

    /// Makes what has been counted until now the basis of `worth`. `first_prior`: re-uses per
    /// block-request to assume at age 0 while nothing is known.
    void rebuild(std::uint64_t now, double first_prior) noexcept {
        ++epoch_;
        std::array<Sums, count_groups> by_count{};
        std::array<Sums, size_groups> by_size{};
        for (Sums& sums : by_tag_) sums = {};
        Sums all{};
        const std::size_t buckets_in_use = age_bucket(now) + 1;
        for (std::size_t c = 0; c < rows_.size(); ++c) {
            Row& row = rows_[c];
            if (!row.is_used) continue;
            row.settle(now, buckets_in_use);
            const std::size_t in_tag = c % classes_per_tag;
            if (in_tag == tail_class) {
                add(all, row.basis, buckets_in_use);
                continue;
            }
            add(by_count[in_tag / size_groups], row.basis, buckets_in_use);
            add(by_size[in_tag % size_groups], row.basis, buckets_in_use);
            if (by_tag_.size() > 1) add(by_tag_[c / classes_per_tag], row.basis, buckets_in_use);
        }
        for (const Sums& sums : by_count) add(all, sums, buckets_in_use);
        double prior = first_prior;
        for (std::size_t b = 0; b < age_buckets; ++b) {
            if (b >= 2) prior *= 0.5;  // a bucket begins at twice the age of the one before
            pooled_[b] = (all.reuses[b] + 10) / (all.exposure[b] + 10 / prior);
            prior = pooled_[b];
            per_pooled_[b] = 1 / pooled_[b];
        }
        for (std::size_t g = 0; g < count_groups; ++g) by_count_[g] = marginal(by_count[g]);
        for (std::size_t g = 0; g < size_groups; ++g) by_size_[g] = marginal(by_size[g]);
        for (Sums& sums : by_tag_) sums.reuses = marginal(sums);
    }

    /// Expected hits per block-request of residence, for a block of this class and age.
    [[nodiscard]] double worth(std::size_t block_class, std::size_t bucket) noexcept {
        Row& row = rows_[block_class];
        if (row.epoch != epoch_) compute_hazards(row, block_class);
        const std::uint32_t bit = 1u << bucket;
        if ((row.has_worth & bit) == 0) {
            row.worth[bucket] = best_ratio(row, bucket);
            row.has_worth |= bit;
        }
        return row.worth[bucket];
    }

    [[nodiscard]] std::size_t bytes() const noexcept {
        return rows_.capacity() * sizeof(Row) + by_tag_.capacity() * sizeof(Sums);
    }

  private:
    struct Sums {
        ByBucket reuses{};
        ByBucket exposure{};
    };
    struct Row {
        // Of each bucket.
        struct Counts {
            // Blocks that came into it and the sum of the times at which they did; of those that
            // left the history from it, too; and how many of these were used again.
            std::uint64_t came = 0;
            std::uint64_t came_at = 0;
            std::uint64_t went = 0;
            std::uint64_t went_at = 0;
            std::uint64_t reuses = 0;
        };
        std::array<Counts, age_buckets + 1> counts{};
        bool is_used = false;
        // From the last rebuild, and what has been worked out from it.
        std::uint32_t has_worth = 0;
        std::uint64_t epoch = 0;
        Sums basis;
        ByBucket reuse_odds{};   // p: that a block which enters the bucket is re-used in it
        ByBucket best_beyond{};  // an upper bound of the ratio of each later bucket
        ByBucket worth{};

        void come(std::size_t bucket, std::uint64_t blocks, std::uint64_t now) noexcept {
            counts[bucket].came += blocks;
            counts[bucket].came_at += blocks * now;
        }
        void go(std::size_t bucket, std::uint64_t blocks, std::uint64_t now) noexcept {
            counts[bucket].went += blocks;
            counts[bucket].went_at += blocks * now;
        }
        /// What has been counted until now becomes the basis. Whoever came into the next bucket
        /// left this one then. The sums may overflow, the differences are right nevertheless.
        void settle(std::uint64_t now, std::size_t buckets) noexcept {
            for (std::size_t b = 0; b < buckets; ++b) {
                const Counts& here = counts[b];
                const Counts& next = counts[b + 1];
                const std::uint64_t live = here.came - next.came - here.went;
                const std::uint64_t stayed =
                    live * now + next.came_at + here.went_at - here.came_at;
                basis.exposure[b] = static_cast<double>(static_cast<std::int64_t>(stayed));
                basis.reuses[b] = static_cast<double>(static_cast<std::int64_t>(here.reuses));
            }
        }
    };

    static constexpr ByBucket widths() noexcept {
        ByBucket widths{};
        for (std::size_t b = 0; b + 1 < age_buckets; ++b) {
            widths[b] = static_cast<double>(bucket_begin(b + 1) - bucket_begin(b));
        }
        widths[age_buckets - 1] = 0.41 * static_cast<double>(bucket_begin(age_buckets - 1));
        return widths;
    }

    /// Adds what is in the leading buckets; eight at a time, so that compilers make it vector code.
    static void add(Sums& sum, const Sums& more, std::size_t buckets) noexcept {
        static_assert(age_buckets % 8 == 0);
        for (std::size_t from = 0; from < buckets; from += 8) {
            for (std::size_t b = from; b < from + 8; ++b) sum.reuses[b] += more.reuses[b];
            for (std::size_t b = from; b < from + 8; ++b) sum.exposure[b] += more.exposure[b];
        }
    }
    /// The hazard of one group, drawn to the pooled one as if by 30 re-uses.
    [[nodiscard]] ByBucket marginal(const Sums& sums) const noexcept {
        ByBucket hazard{};
        for (std::size_t b = 0; b < age_buckets; ++b) {
            hazard[b] = (sums.reuses[b] + 30) / (sums.exposure[b] + 30 * per_pooled_[b]);
        }
        return hazard;
    }

    void compute_hazards(Row& row, std::size_t block_class) noexcept {
        static constexpr ByBucket width = widths();
        const std::size_t in_tag = block_class % classes_per_tag;
        ByBucket expected = pooled_;  // q: what the class's groups make one expect of it
        if (in_tag != tail_class) {
            const ByBucket& by_count = by_count_[in_tag / size_groups];
            const ByBucket& by_size = by_size_[in_tag % size_groups];
            for (std::size_t b = 0; b < age_buckets; ++b) {
                expected[b] = by_count[b] * by_size[b] * per_pooled_[b];
            }
            if (by_tag_.size() > 1) {
                const ByBucket& by_tag = by_tag_[block_class / classes_per_tag].reuses;
                for (std::size_t b = 0; b < age_buckets; ++b) {
                    expected[b] *= by_tag[b] * per_pooled_[b];
                }
            }
        }
        // Loops so simple that compilers turn them into vector code.
        ByBucket hazard;
        for (std::size_t b = 0; b < age_buckets; ++b) {
            hazard[b] = (row.basis.reuses[b] + 30) * expected[b] /
                        (row.basis.exposure[b] * expected[b] + 30);
        }
        ByBucket odds;
        for (std::size_t b = 0; b < age_buckets; ++b) {
            // 1 − exp(−x), in place of which 3.4 and more count as 0.93.
            const double x = hazard[b] * width[b];
            odds[b] = x / (1 + x * (0.5 + x * (1.0 / 12)));
        }
        for (std::size_t b = 0; b < age_buckets; ++b) {
            row.reuse_odds[b] = hazard[b] * width[b] > 3.4 ? 0.93 : odds[b];
        }
        double best = 0;
        for (std::size_t b = age_buckets; b-- > 0;) {
            row.best_beyond[b] = best;
            best = std::max(best, hazard[b]);
        }
        row.has_worth = 0;
        row.epoch = epoch_;
    }

    /// The largest ratio, over all horizons, of expected re-uses to expected block-requests until
    /// then (Gittins: Bandit processes and dynamic allocation indices, 1979).
    static double best_ratio(const Row& row, std::size_t bucket) noexcept {
        static constexpr ByBucket width = widths();
        double stays = 1;
        double hits = 0;
        double cost = 0;
        double best_hits = 0;
        double best_cost = 1;
        for (std::size_t b = bucket; b < age_buckets; ++b) {
            const double odds = row.reuse_odds[b];
            hits += stays * odds;
            cost += stays * width[b] * (1 - odds * 0.5);
            stays *= 1 - odds;
            if (hits * best_cost > best_hits * cost) {
                best_hits = hits;
                best_cost = cost;
            }
            // No later bucket has more hits per block-request than its hazard: none can help.
            if (hits >= row.best_beyond[b] * cost) break;
        }
        return best_hits / best_cost;
    }

    std::vector<Row> rows_;
    std::vector<Sums> by_tag_;  // after a rebuild `reuses` holds the hazards
    std::uint64_t epoch_ = 0;
    ByBucket pooled_{};      // P
    ByBucket per_pooled_{};  // 1 / P
    std::array<ByBucket, count_groups> by_count_{};
    std::array<ByBucket, size_groups> by_size_{};
};

}  // namespace kvstem
