// SPDX-License-Identifier: MIT
// Rows on PrefixCache: snapshot-find, snapshot-take.

#include <algorithm>
#include <cstddef>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench.hpp"
#include "kvstem/prefix_cache.hpp"

namespace bench {
namespace {

/// A KV that has a length and nothing else: finding is measured, not copying.
struct LengthOnlyKv {
    std::size_t tokens = 0;
    [[nodiscard]] std::size_t length() const noexcept { return tokens; }
    [[nodiscard]] std::size_t bytes() const noexcept { return tokens; }
    [[nodiscard]] LengthOnlyKv prefix(std::size_t n) const { return {n}; }
};

/// Snapshots of 4,096 tokens that share 2,000, asked for in random order.
class Snapshots {
  public:
    explicit Snapshots(std::size_t n)
        : cache_({.max_entries = n}), shared_(random_.tokens(shared)) {
        for (std::size_t i = 0; i < n; ++i) {
            Tokens tokens = shared_;
            tokens.resize(length);
            random_.fill(std::span(tokens).subspan(shared));
            cache_.store(tokens, LengthOnlyKv{length});
            rests_.emplace_back(tokens.begin() + shared, tokens.end());
            prompts_.push_back(std::move(tokens));
        }
        for (std::size_t i = 0; i < calls; ++i) order_.push_back(random_.below(n));
        require(cache_.size() == n && cache_.peek(prompts_[0]).tokens == length,
                "a snapshot is not found");
    }
    Seconds find() const {
        return time([&] {
                   for (const std::size_t i : order_) keep(cache_.peek(prompts_[i]));
               }) /
               calls;
    }
    /// Compares the same prompts with a copy in which, as in the tree, what is shared is there
    /// once.
    Seconds floor() const {
        return time([&] {
                   for (const std::size_t i : order_) {
                       const View prompt = prompts_[i];
                       keep(compare(prompt.first(shared), shared_) |
                            compare(prompt.subspan(shared), rests_[i]));
                   }
               }) /
               calls;
    }

  private:
    static constexpr std::size_t length = 4096;
    static constexpr std::size_t shared = 2000;
    static constexpr std::size_t calls = 2000;
    kvstem::PrefixCache<LengthOnlyKv> cache_;
    Random random_{13};
    Tokens shared_;
    std::vector<Tokens> prompts_;
    std::vector<Tokens> rests_;
    std::vector<std::size_t> order_;
};

void find(Bench& bench) {
    std::vector<std::size_t> sizes = {10, 100, 1000, 10'000};
    if (bench.quick) sizes.pop_back();
    for (const std::size_t n : sizes) {
        const Snapshots snapshots(n);
        const auto medians = alternate(bench.rounds(15), {[&] { return snapshots.floor(); },
                                                          [&] { return snapshots.find(); }});
        bench.add({"snapshot-find", std::to_string(n) + " entries", medians[1] * 1e6,
                   medians[0] * 1e6, "us", "floor", 2.0});
    }
}

/// A KV of real memory that counts what is copied of it.
class CountingKv {
  public:
    static inline std::size_t bytes_copied = 0;

    CountingKv(std::size_t tokens, std::size_t bytes) : tokens_(tokens), memory_(bytes, 1) {}
    CountingKv(const CountingKv& other) : tokens_(other.tokens_), memory_(other.memory_) {
        bytes_copied += memory_.size();
    }
    CountingKv(CountingKv&&) noexcept = default;
    CountingKv& operator=(CountingKv other) noexcept {
        tokens_ = other.tokens_;
        memory_.swap(other.memory_);
        return *this;
    }
    ~CountingKv() = default;
    [[nodiscard]] std::size_t length() const noexcept { return tokens_; }
    [[nodiscard]] std::size_t bytes() const noexcept { return memory_.size(); }
    [[nodiscard]] CountingKv prefix(std::size_t n) const {
        bytes_copied += memory_.size() / tokens_ * n;
        return {n, memory_.size() / tokens_ * n};
    }
    /// Room for a turn: the rows are there already, only the length grows.
    void grow(std::size_t tokens) { tokens_ += tokens; }

  private:
    std::size_t tokens_;
    std::vector<unsigned char> memory_;
};

/// Turns of a conversation through `take`, and for comparison the copy that `acquire` makes.
void take(Bench& bench) {
    constexpr std::size_t kv_bytes = 100'000'000;
    constexpr std::size_t turn_tokens = 100;
    kvstem::PrefixCache<CountingKv> cache;
    Random random(17);
    Tokens tokens = random.tokens(2000);
    cache.store(tokens, CountingKv(tokens.size(), kv_bytes));

    const int turns = bench.rounds(15);
    CountingKv::bytes_copied = 0;
    std::vector<Seconds> times;
    for (int turn = 0; turn < turns; ++turn) {
        const Tokens more = random.tokens(turn_tokens);
        tokens.insert(tokens.end(), more.begin(), more.end());
        times.push_back(wall_time([&] {
            auto hit = cache.take(tokens);
            require(hit && hit->moved && hit->tokens + turn_tokens == tokens.size(),
                    "a turn was not taken");
            hit->kv.grow(turn_tokens);
            cache.store(tokens, std::move(hit->kv));
        }));
    }
    bench.add({"snapshot-take", "bytes copied, " + std::to_string(turns) + " turns",
               static_cast<double>(CountingKv::bytes_copied) / 1e6, kv_bytes / 1e6, "MB", "the KV",
               0.0});

    std::vector<Seconds> copies;
    for (int i = 0; i < bench.rounds(6); ++i) {
        copies.push_back(wall_time([&] { keep(cache.acquire(tokens)); }));
    }
    require(CountingKv::bytes_copied == copies.size() * kv_bytes, "copies are not counted");
    bench.add({"snapshot-take", "take and store", median(times) * 1e6, median(copies) * 1e6, "us",
               "acquire (a copy)"});
}

}  // namespace

void snapshot_rows(Bench& bench) {
    if (bench.wants({"snapshot-find"})) find(bench);
    if (bench.wants({"snapshot-take"})) take(bench);
}

}  // namespace bench
