// SPDX-License-Identifier: MIT
// Rows on one long sequence: long-hot, long-split, long-acquire.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "bench.hpp"

namespace bench {
namespace {

constexpr std::size_t long_tokens = 131'072;
constexpr std::size_t other_tokens = 4096;
constexpr std::size_t cuts = 1000;
constexpr int calls = 20;  // timed in one go

/// Where the long sequence is cut for the i-th time, at the end of a page.
std::size_t place_of_cut(std::size_t i, std::size_t page_tokens) {
    return i * (long_tokens / (cuts + 1)) / page_tokens * page_tokens;
}

template <class Action>
Seconds time_each(Action&& action) {
    return time([&] {
               for (int i = 0; i < calls; ++i) action();
           }) /
           calls;
}

/// What finding and acquiring a sequence in pieces comes down to, without a tree: a list of pieces,
/// each come by through a slot that the one before it leads to. Slots and pieces lie in no order
/// among as many as the cache has nodes.
class Pieces {
  public:
    Pieces(std::size_t nodes, std::size_t page_tokens)
        : page_tokens_(page_tokens), pieces_(nodes), slots_(nodes * 2) {
        std::vector<std::uint32_t> piece_at(pieces_.size());
        std::vector<std::uint32_t> slot_at(slots_.size());
        std::iota(piece_at.begin(), piece_at.end(), 0u);
        std::iota(slot_at.begin(), slot_at.end(), 0u);
        std::shuffle(piece_at.begin(), piece_at.end(), std::mt19937_64(9));
        std::shuffle(slot_at.begin(), slot_at.end(), std::mt19937_64(10));
        first_slot_ = slot_at[0];
        for (std::size_t i = 0; i <= cuts; ++i) {
            const std::size_t begin = place_of_cut(i, page_tokens_);
            const std::size_t end = i < cuts ? place_of_cut(i + 1, page_tokens_) : long_tokens;
            pieces_[piece_at[i]] = {begin, end - begin, slot_at[i + 1], 0};
            slots_[slot_at[i]].piece = piece_at[i];
        }
    }

    /// Compares piece by piece.
    void find(View prompt, View copy) {
        path_.clear();
        std::uint32_t slot = first_slot_;
        for (std::size_t at = 0; at < prompt.size();) {
            const std::uint32_t number = slots_[slot].piece;
            const Piece& piece = pieces_[number];
            if (compare(prompt.subspan(piece.begin, piece.size),
                        copy.subspan(piece.begin, piece.size)) != 0) {
                break;
            }
            path_.push_back(number);
            at += piece.size;
            slot = piece.next_slot;
        }
        require(path_.size() == cuts + 1, "the pieces are not all there");
    }
    /// Visits each piece again, counts it and copies its ids; then counts each back.
    void acquire_and_release(View prompt, View copy, std::span<const kvstem::PageId> ids,
                             std::span<kvstem::PageId> copied_ids) {
        find(prompt, copy);
        for (const std::uint32_t number : path_) {
            Piece& piece = pieces_[number];
            ++piece.count;
            std::copy_n(&ids[piece.begin / page_tokens_], piece.size / page_tokens_,
                        &copied_ids[piece.begin / page_tokens_]);
        }
        for (const std::uint32_t number : path_) --pieces_[number].count;
        keep(copied_ids);
    }

  private:
    struct alignas(64) Piece {
        std::size_t begin;
        std::size_t size;
        std::uint32_t next_slot;
        int count;
    };
    struct alignas(16) Slot {
        std::uint32_t piece;
    };
    std::size_t page_tokens_;
    std::vector<Piece> pieces_;
    std::vector<Slot> slots_;
    std::vector<std::uint32_t> path_;
    std::uint32_t first_slot_ = 0;
};

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
        if (bench_.wants({"long-acquire"})) add_acquire_whole();
    }

    /// Requests that leave the sequence at as many places, in random order, so that the nodes it is
    /// cut into lie in memory in no order either.
    void split() {
        std::vector<std::size_t> places(cuts);
        std::iota(places.begin(), places.end(), std::size_t{1});
        std::shuffle(places.begin(), places.end(), std::mt19937_64(3));
        for (const std::size_t place : places) {
            const std::size_t at = place_of_cut(place, page_tokens_);
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
        Pieces pieces(cache_.stats().nodes, page_tokens_);
        if (bench_.wants({"long-split"})) add_find(pieces);
        if (bench_.wants({"long-acquire"})) add_acquire_split(pieces);
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

    /// Beside long-split: the same pieces without a tree. 2.2 to 2.8 compares where the tree, which
    /// asks for the next piece ahead, took 1.8 to 2.2.
    void add_find(Pieces& pieces) {
        const auto medians = alternate(
            bench_.rounds(15), {[&] { return floor(); },
                                [&] { return time_each([&] { pieces.find(prompt_, copy_); }); }});
        bench_.add({"long-split", name_of(page_tokens_) + ", memory alone", medians[1] * 1e6,
                    medians[0] * 1e6, "us", "floor"});
    }

    /// Acquire builds the block table: at P = 1 one page id for each token, as many bytes as the
    /// prompt itself has. There the yardstick has a copy of the ids added, outside the factor.
    /// `alone` does the same work on plain arrays and nothing else.
    void add_acquire(const std::string& what, double target, const std::function<void()>& alone) {
        const auto copy_ids = [&] {
            return time_each([&] {
                copied_ids_.assign(ids_.begin(), ids_.end());
                keep(copied_ids_);
            });
        };
        const auto medians = alternate(
            bench_.rounds(15), {[&] { return floor(); },
                                [&] { return time_each([&] { keep(cache_.acquire(prompt_)); }); },
                                copy_ids, [&] { return time_each(alone); }});
        const std::string detail = name_of(page_tokens_) + " " + what;
        Seconds yardstick = medians[0];
        std::string yardstick_name = "floor";
        auto bound = target_for_16(target);
        if (page_tokens_ == 1) {
            yardstick = target * medians[0] + medians[2];
            char name[32];
            std::snprintf(name, sizeof name, "%.1f floor + ids", target);
            yardstick_name = name;
            bound = 1.0;
        }
        bench_.add({"long-acquire", detail, medians[1] * 1e6, yardstick * 1e6, "us", yardstick_name,
                    bound});
        bench_.add({"long-acquire", detail + ", memory alone", medians[3] * 1e6, yardstick * 1e6,
                    "us", yardstick_name});
    }

    /// The yardstick at P = 1 goes over 1 MB in each of its two parts, and an acquire over the 2 MB
    /// of both in turn. Where a near cache holds one but not the other, the two together take longer
    /// than their sum: 0.9 to 1.1 times the yardstick with nothing else done, where acquire and
    /// release took 1.07 to 1.2.
    void add_acquire_whole() {
        add_acquire("whole", 1.5, [&] {
            keep(compare(prompt_, copy_));
            copied_ids_.assign(ids_.begin(), ids_.end());
            keep(copied_ids_);
        });
    }
    /// On the machine where acquire and release took 2.8 to 3.2 compares, the pieces alone took 2.7
    /// to 3.1: each of a thousand is a short compare, and is come by three times. At P = 1 the tree
    /// is faster than the plain loop.
    void add_acquire_split(Pieces& pieces) {
        copied_ids_ = ids_;
        add_acquire("split", 2.8,
                    [&] { pieces.acquire_and_release(prompt_, copy_, ids_, copied_ids_); });
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
