// SPDX-License-Identifier: MIT
// The row of a full cache that takes in as much as it gives up: churn.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "bench.hpp"

namespace bench {
namespace {

constexpr std::size_t step_tokens = 512;

/// A full cache of sequences that share nothing. A step evicts 512 tokens, then publishes 512 new
/// ones: acquire, publish, release. Its tokens are made before the clock starts.
class Churn {
  public:
    Churn(std::size_t capacity_tokens, std::size_t page_tokens)
        : step_pages_(step_tokens / page_tokens),
          cache_({.page_tokens = page_tokens}, kvstem::PagePool(capacity_tokens / page_tokens)) {
        while (cache_.free_pages() >= step_pages_) {
            random_.fill(tokens_);
            serve(cache_, tokens_);
        }
    }

    /// Some steps; returns the mean time of their evictions, and keeps that of their publishes.
    /// Means, so that work put off by one step counts when another does it; of few steps, so that
    /// the median over many repetitions is of those that nothing else interrupted.
    Seconds evict_and_publish() {
        constexpr int steps = 500;
        Seconds evicting = 0;
        publishing_ = 0;
        for (int i = 0; i < steps; ++i) {
            random_.fill(tokens_);
            std::size_t evicted = 0;
            evicting += wall_time([&] { evicted = cache_.evict(step_pages_); });
            require(evicted == step_pages_, "a step has not evicted what it should");
            publishing_ += wall_time([&] { serve(cache_, tokens_); });
        }
        publishing_ = publishing_ / steps - clock_cost_;
        return evicting / steps - clock_cost_;
    }
    [[nodiscard]] Seconds publishing() const { return publishing_; }

  private:
    Seconds clock_cost_ = clock_cost();
    Seconds publishing_ = 0;
    std::size_t step_pages_;
    Random random_{11};
    Tokens tokens_ = Tokens(step_tokens);
    Cache cache_;
};

/// The memory that a publish at P = 1 cannot do without, and nothing else: a line of a table that
/// only the prompt names, a line for the node, 512 ids written for the block table, and these and
/// the tokens copied to where nobody has been for a whole capacity.
class ChurnAlone {
  public:
    explicit ChurnAlone(std::size_t capacity_tokens)
        : lines_(capacity_tokens / step_tokens * 2),
          store_(capacity_tokens / step_tokens * (2 * step_tokens)) {}

    Seconds publishing() {
        constexpr int steps = 500;
        Seconds sum = 0;
        for (int i = 0; i < steps; ++i) {
            random_.fill(tokens_);
            sum += wall_time([&] { publish(); });
        }
        return sum / steps - clock_cost_;
    }

  private:
    struct alignas(64) Line {
        std::uint32_t words[16];
    };
    void publish() {
        const auto prompt = static_cast<std::uint32_t>(tokens_[0]);
        Line& slot = lines_[prompt % lines_.size()];
        const std::uint32_t first = slot.words[0];
        for (std::uint32_t i = 0; i < step_tokens; ++i) ids_[i] = first + i;
        std::uint32_t* run = store_.data() + used_;
        std::memcpy(run, tokens_.data(), step_tokens * sizeof(std::uint32_t));
        std::memcpy(run + step_tokens, ids_.data(), step_tokens * sizeof(std::uint32_t));
        used_ = (used_ + 2 * step_tokens) % store_.size();
        Line& node = lines_[(prompt * 0x9E37'79B1u + first) % lines_.size()];
        node = {};
        node.words[1] = prompt;
        ++slot.words[2];
        keep(ids_);
    }

    Seconds clock_cost_ = clock_cost();
    Random random_{12};
    Tokens tokens_ = Tokens(step_tokens);
    std::vector<std::uint32_t> ids_ = std::vector<std::uint32_t>(step_tokens);
    std::vector<Line> lines_;
    std::vector<std::uint32_t> store_;
    std::size_t used_ = 0;
};

}  // namespace

/// What a publish at P = 1 takes, timed in parts on a machine where L is 170 to 200 ns and the row
/// comes to about 3 L:
///
///   - 265 ns to acquire, where P = 16 takes 115. Of both, about 100 (timed on another machine) go
///     by until one line of the child table is there that nobody has touched for long: which one is
///     known only when the prompt is, and all else depends on it. What P = 1 has on top is 512 ids
///     from the pool: 30 ns in one piece if all is in the nearest cache, and 12 for each place at
///     which the free pages are not neighbours, 3 to 7 here. There are more of these the longer such
///     traffic lasts: an eviction of 512 pages that ends in the middle of a sequence cuts it for
///     ever;
///   - 260 ns to publish, where P = 16 takes 150: the node, its place in the child table and 2 KB of
///     tokens that go to lines which are in no near cache. What P = 1 has on top is 2 KB of ids that
///     go there, too. Asking for the lines first, here or when the request comes, gained nothing;
///   - 15 ns to release.
///
/// Ids kept as pieces of neighbours, eight bytes a piece, would be half of the index at P = 1. Built
/// and measured, an eviction took half the time, a publish here no less, and the chat row at P = 16
/// a tenth more: when much has come and gone, pieces are few pages long.
///
/// The row of the memory alone is what remains if a publish did nothing else. Each repetition
/// begins behind a measurement of L, which leaves little in the caches; without it a publish takes
/// a fifth less.
void churn_rows(Bench& bench) {
    if (!bench.wants({"churn"})) return;
    for (const std::size_t page_tokens : page_sizes) {
        Churn churn(bench.scaled(2'000'000), page_tokens);
        const auto medians = alternate(bench.rounds(61), {[&] { return bench.latency.measure(); },
                                                          [&] { return churn.evict_and_publish(); },
                                                          [&] { return churn.publishing(); }});
        std::optional<double> publish;
        std::optional<double> evict;
        if (page_tokens == 16) publish = 3.0, evict = 2.0;
        if (page_tokens == 1) publish = evict = 4.0;
        const std::string name = name_of(page_tokens);
        bench.add(
            {"churn", name + " publish", medians[2] * 1e9, medians[0] * 1e9, "ns", "L", publish});
        bench.add({"churn", name + " evict", medians[1] * 1e9, medians[0] * 1e9, "ns", "L", evict});
        if (page_tokens != 1) continue;
        ChurnAlone alone(bench.scaled(2'000'000));
        const auto bare = alternate(bench.rounds(61), {[&] { return bench.latency.measure(); },
                                                       [&] { return alone.publishing(); }});
        bench.add(
            {"churn", name + " publish, memory alone", bare[1] * 1e9, bare[0] * 1e9, "ns", "L"});
    }
}

}  // namespace bench
