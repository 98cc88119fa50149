// SPDX-License-Identifier: MIT
// Rows on one long sequence: long-hot, long-split, long-acquire.

#include <cstddef>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "bench.hpp"

namespace bench {
namespace {

constexpr std::size_t long_tokens = 131'072;
constexpr std::size_t other_tokens = 4096;
constexpr std::size_t cuts = 1000;
constexpr int calls = 20;  // timed in one go

template <class Action>
Seconds time_each(Action&& action) {
    return time([&] {
               for (int i = 0; i < calls; ++i) action();
           }) /
           calls;
}

/// A long sequence among others, and what it is compared with.
class LongTree {
  public:
    LongTree(Bench& bench, std::size_t page_tokens)
        : bench_(bench),
          page_tokens_(page_tokens),
          others_(bench.scaled(1000)),
          cache_({.page_tokens = page_tokens}, kvstem::PagePool(pages())),
          prompt_(random_.tokens(long_tokens)),
          copy_(prompt_),
          ids_(long_tokens / page_tokens) {
        for (std::size_t i = 0; i < others_; ++i) serve(cache_, random_.tokens(other_tokens));
        serve(cache_, prompt_);
    }

    void measure_whole() {
        add_peek("long-hot", 1.2);
        add_acquire("whole", 1.5);
    }

    /// Requests that leave the sequence at as many places, in random order, so that the nodes it is
    /// cut into lie in memory in no order either.
    void split() {
        std::vector<std::size_t> places(cuts);
        std::iota(places.begin(), places.end(), std::size_t{1});
        std::shuffle(places.begin(), places.end(), std::mt19937_64(3));
        for (const std::size_t place : places) {
            const std::size_t at = place * (long_tokens / (cuts + 1)) / page_tokens_ * page_tokens_;
            Tokens request(prompt_.begin(), prompt_.begin() + static_cast<std::ptrdiff_t>(at));
            request.resize(at + 2 * page_tokens_);
            random_.fill(std::span(request).subspan(at));
            serve(cache_, request);
        }
        require(cache_.stats().nodes >= others_ + 2 * cuts, "the long sequence is not cut up");
    }

    /// The peeks come first: no acquire has passed the path since it was split.
    void measure_split() {
        add_peek("long-split", 2.0);
        add_acquire("split", 2.8);
    }

  private:
    [[nodiscard]] std::size_t pages() const {
        const std::size_t tokens = long_tokens + others_ * other_tokens;
        return tokens / page_tokens_ + 2 * cuts + long_tokens / page_tokens_ + 1;
    }

    Seconds floor() {
        return time_each([&] { keep(compare(prompt_, copy_)); });
    }

    void add_peek(const char* id, double target) {
        if (!bench_.wants({id})) return;
        require(cache_.peek(prompt_).cached_tokens == long_tokens, "the long sequence is cut");
        const auto medians = alternate(
            bench_.rounds(15), {[&] { return floor(); },
                                [&] { return time_each([&] { keep(cache_.peek(prompt_)); }); }});
        bench_.add({id, name_of(page_tokens_), medians[1] * 1e6, medians[0] * 1e6, "us", "floor",
                    target_for_16(target)});
    }

    /// Acquire builds the block table: at P = 1 one page id for each token, as many bytes as the
    /// prompt itself has. There the yardstick has a copy of the ids added, outside the factor.
    ///
    /// Both parts of that yardstick go over 1 MB each, and an acquire over the 2 MB of both in turn.
    /// Where a near cache holds one but not the other, the two together take longer than their sum;
    /// the last row says how long, with nothing else done.
    void add_acquire(const std::string& what, double target) {
        if (!bench_.wants({"long-acquire"})) return;
        const auto acquire = [&] { return time_each([&] { keep(cache_.acquire(prompt_)); }); };
        const auto copy_ids = [&] {
            return time_each([&] {
                copied_ids_.assign(ids_.begin(), ids_.end());
                keep(copied_ids_);
            });
        };
        const auto both = [&] {
            return time_each([&] {
                keep(compare(prompt_, copy_));
                copied_ids_.assign(ids_.begin(), ids_.end());
                keep(copied_ids_);
            });
        };
        const auto medians =
            alternate(bench_.rounds(15), {[&] { return floor(); }, acquire, copy_ids, both});
        const std::string detail = name_of(page_tokens_) + " " + what;
        if (page_tokens_ == 1) {
            char name[32];
            std::snprintf(name, sizeof name, "%.1f floor + ids", target);
            bench_.add({"long-acquire", detail, medians[1] * 1e6,
                        (target * medians[0] + medians[2]) * 1e6, "us", name, 1.0});
            bench_.add({"long-acquire", detail + " compare, copy alone", medians[3] * 1e6,
                        (target * medians[0] + medians[2]) * 1e6, "us", name});
        } else {
            bench_.add({"long-acquire", detail, medians[1] * 1e6, medians[0] * 1e6, "us", "floor",
                        target_for_16(target)});
        }
    }

    [[nodiscard]] std::optional<double> target_for_16(double target) const {
        return page_tokens_ == 16 ? std::optional(target) : std::nullopt;
    }

    Bench& bench_;
    std::size_t page_tokens_;
    std::size_t others_;
    Random random_{7};
    Cache cache_;
    Tokens prompt_;
    Tokens copy_;
    std::vector<kvstem::PageId> ids_;
    std::vector<kvstem::PageId> copied_ids_;
};

}  // namespace

void long_rows(Bench& bench) {
    if (!bench.wants({"long-hot", "long-split", "long-acquire"})) return;
    for (const std::size_t page_tokens : page_sizes) {
        LongTree tree(bench, page_tokens);
        tree.measure_whole();
        tree.split();
        tree.measure_split();
    }
}

}  // namespace bench
