// SPDX-License-Identifier: MIT
// The row of the reference decoder: what a cached prefix saves of a prefill.

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "bench.hpp"
#include "kvstem/prefix_cache.hpp"
#include "kvstem/reference/decoder.hpp"
#include "kvstem/reference/kv.hpp"
#include "kvstem/reference/model.hpp"
#include "kvstem/reference/paged_kv.hpp"
#include "kvstem/reference/presets.hpp"

namespace bench {
namespace {

namespace reference = kvstem::reference;

/// A prompt of 400 tokens of which 380 are cached. The page size divides both, so that the same
/// prefix can be cached in pages and as a snapshot.
class Prefill {
  public:
    Prefill() : decoder_(reference::Model::from_seed(reference::presets::demo(), 42)) {
        Random random(19);
        for (auto& token : prompt_) token = static_cast<kvstem::Token>(random.below(512));
        const View prefix = View(prompt_).first(cached);
        reference::ContiguousKv kv(shape());
        keep(decoder_.forward_batch(prefix, 0, kv, reference::LogitsFor::last_token));
        snapshots_.store(prefix, std::move(kv));

        auto acquired = pages_.acquire(prefix);
        reference::PagedKvView view(store_, acquired.lease.block_table(), 0);
        keep(decoder_.forward_batch(prefix, 0, view, reference::LogitsFor::last_token));
        acquired.lease.wrote(prefix);
        acquired.lease.publish();
    }
    Seconds cold() {
        return time([&] {
            reference::ContiguousKv kv(shape());
            keep(decoder_.forward_batch(prompt_, 0, kv, reference::LogitsFor::last_token));
        });
    }
    Seconds warm_from_snapshot() {
        return time([&] {
            auto hit = snapshots_.acquire(prompt_);
            require(hit && hit->tokens == cached, "the snapshot is not found");
            keep(decoder_.forward_batch(View(prompt_).subspan(cached), cached, hit->kv,
                                        reference::LogitsFor::last_token));
        });
    }
    /// Nothing is published, so that every repetition finds the same.
    Seconds warm_from_pages() {
        return time([&] {
            auto acquired = pages_.acquire(prompt_);
            require(acquired && acquired.lease.adopted() == cached, "the pages are not found");
            reference::PagedKvView view(store_, acquired.lease.block_table(), cached);
            keep(decoder_.forward_batch(View(prompt_).subspan(cached), cached, view,
                                        reference::LogitsFor::last_token));
        });
    }
    static constexpr double computed_part() { return double{total - cached} / double{total}; }
    [[nodiscard]] double multiplied_part() const {
        return multiplications(cached, total) / multiplications(0, total);
    }

  private:
    static constexpr std::size_t total = 400;
    static constexpr std::size_t cached = 380;
    static constexpr std::size_t page_tokens = 20;
    static constexpr std::size_t n_pages = 64;

    /// Multiplications of a prefill of the positions [first, last).
    [[nodiscard]] double multiplications(std::size_t first, std::size_t last) const {
        const reference::ModelConfig& c = decoder_.config();
        const std::size_t weights =
            c.dim * (2 * c.query_size() + 2 * c.row_size() + 3 * c.hidden_dim);
        std::size_t sum = c.dim * c.vocab_size;  // logits of the last token only
        for (std::size_t position = first; position < last; ++position) {
            sum += c.n_layers * (weights + 2 * c.query_size() * (position + 1));
        }
        return static_cast<double>(sum);
    }

    [[nodiscard]] reference::KvShape shape() const { return decoder_.config().kv_shape(); }

    Tokens prompt_ = Tokens(total);
    reference::Decoder decoder_;
    kvstem::PrefixCache<reference::ContiguousKv> snapshots_;
    Cache pages_{{.page_tokens = page_tokens}, kvstem::PagePool(n_pages)};
    reference::PagedKvStore store_{shape(), n_pages, page_tokens};
};

}  // namespace

/// At least 0.9 × the ideal speed-up is at most 1 / 0.9 × the ideal time, which is the cold one's
/// part for the tokens that have to be computed.
///
/// That ideal takes all tokens for equal, but those left to compute are the last, which attend to
/// most positions: a position p of this model costs 2.9 million multiplications with weights and
/// 2,048 for each of the p + 1 positions it attends to. By multiplications alone the ratio cannot
/// be below 1.12, and a multiplication in attention costs more than one with weights, because every
/// score also needs an exponential. The third row compares with the multiplications that remain.
void model_rows(Bench& bench) {
    if (!bench.wants({"model"})) return;
    Prefill prefill;
    const auto medians = alternate(bench.rounds(9), {[&] { return prefill.cold(); },
                                                     [&] { return prefill.warm_from_snapshot(); },
                                                     [&] { return prefill.warm_from_pages(); }});
    const double ideal = medians[0] * Prefill::computed_part() * 1e3;
    bench.add({"model", "380 of 400 in a snapshot", medians[1] * 1e3, ideal, "ms",
               "cold x 20 / 400", 1 / 0.9});
    bench.add({"model", "380 of 400 in pages of 20", medians[2] * 1e3, ideal, "ms",
               "cold x 20 / 400", 1 / 0.9});
    bench.add({"model", "the same", medians[2] * 1e3, medians[0] * prefill.multiplied_part() * 1e3,
               "ms", "multiplications"});
}

}  // namespace bench
