// SPDX-License-Identifier: MIT
// Rows on memory: memory, memory-cut, memory-soak. Index only; there is no KV here.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench.hpp"

namespace bench {
namespace {

/// The index by its own account: the tree and its bookkeeping, and the page pool's.
double index_bytes(const Cache& cache) {
    return static_cast<double>(cache.stats().index_bytes + cache.pages().bytes());
}
double cached_tokens(const Cache& cache) {
    return static_cast<double>(cache.cached_pages() * cache.page_tokens());
}

/// Random tokens, in which every sequence of this many begins with a token of its own: with pages
/// of one token, others would share their first page.
Tokens distinct_sequences(std::uint64_t seed, std::size_t n, std::size_t tokens_each) {
    Tokens tokens = Random(seed).tokens(n * tokens_each);
    for (std::size_t i = 0; i < n; ++i) {
        tokens[i * tokens_each] = static_cast<kvstem::Token>(128'000 + i);
    }
    return tokens;
}

/// Adds two rows, per cached token: what the cache says it takes, and how much larger the process
/// has become since `resident_before`. The account counts reserved memory that was never touched,
/// the process does not; it counts the allocator's own instead. Both are held to the target.
void add_per_token(Bench& bench, const char* id, const std::string& detail, const Cache& cache,
                   std::size_t resident_before, std::optional<double> target) {
    const double tokens = cached_tokens(cache);
    const double resident =
        static_cast<double>(trimmed_resident_bytes()) - static_cast<double>(resident_before);
    bench.add({id, detail, index_bytes(cache) / tokens, 1, "B", "a token", target});
    bench.add({id, detail + ", resident", resident / tokens, 1, "B", "a token", target});
}

void memory_long(Bench& bench, std::size_t page_tokens) {
    constexpr std::size_t other_tokens = 4096;
    constexpr std::size_t long_tokens = 32 * other_tokens;
    const std::size_t others = bench.scaled(1000);
    const Tokens tokens = distinct_sequences(7, others + 32, other_tokens);
    const View all(tokens);
    const std::size_t before = trimmed_resident_bytes();
    Cache cache({.page_tokens = page_tokens}, kvstem::PagePool(all.size() / page_tokens));
    for (std::size_t i = 0; i < others; ++i) {
        serve(cache, all.subspan(long_tokens + i * other_tokens, other_tokens));
    }
    serve(cache, all.first(long_tokens));
    require(cached_tokens(cache) == static_cast<double>(all.size()), "the long tree does not fit");
    std::optional<double> target;
    if (page_tokens == 16) target = 4.9;
    if (page_tokens == 1) target = 9.0;
    add_per_token(bench, "memory", name_of(page_tokens) + " long", cache, before, target);
}

void memory_wide(Bench& bench, std::size_t page_tokens) {
    const Wide wide(bench.scaled(1'000'000), bench.scaled(1000));
    const std::size_t before = trimmed_resident_bytes();
    Cache cache({.page_tokens = page_tokens}, kvstem::PagePool(wide.pages(page_tokens)));
    for (std::size_t i = 0; i < wide.size; ++i) serve(cache, wide[i]);
    require(cache.stats().evicted_pages == 0, "the wide tree does not fit");
    std::optional<double> target;
    if (page_tokens == 16) target = 8.5;
    if (page_tokens == 1) target = 13.0;
    add_per_token(bench, "memory", name_of(page_tokens) + " wide", cache, before, target);
}

/// Sequences of 4,096 tokens, of which eviction takes the tail until 256 are left. It would go on
/// with the rest of the same sequence, so each is used again once it is short.
void memory_cut(Bench& bench, std::size_t page_tokens) {
    constexpr std::size_t whole = 4096;
    constexpr std::size_t kept = 256;
    const std::size_t n = bench.scaled(4000);
    const Tokens tokens = distinct_sequences(23, n, whole);
    const View all(tokens);
    const std::size_t before = trimmed_resident_bytes();
    Cache cache({.page_tokens = page_tokens}, kvstem::PagePool(all.size() / page_tokens));
    for (std::size_t i = 0; i < n; ++i) serve(cache, all.subspan(i * whole, whole));
    for (std::size_t i = 0; i < n; ++i) {
        cache.evict((whole - kept) / page_tokens);
        // One token more than is kept, because a request never adopts its last one.
        keep(cache.acquire(all.subspan(i * whole, kept + 1)));
    }
    require(cached_tokens(cache) == static_cast<double>(n * kept) &&
                cache.peek(all.first(whole)).cached_tokens == kept &&
                cache.peek(all.last(whole)).cached_tokens == kept,
            "the sequences are not cut as they should");
    add_per_token(bench, "memory-cut", name_of(page_tokens), cache, before,
                  page_tokens == 16 ? std::optional(6.5) : std::nullopt);
}

/// Requests of mixed lengths for ever, in a pool that is always full: many short ones, some long,
/// and one in ten continues or repeats what an earlier one began.
class Soak {
  public:
    Soak(std::size_t capacity_tokens, std::size_t page_tokens)
        : cache_({.page_tokens = page_tokens}, kvstem::PagePool(capacity_tokens / page_tokens)) {}

    void publish(std::size_t requests) {
        const View all(tokens_);
        for (std::size_t i = 0; i < requests; ++i) {
            const std::size_t start = random_.below(starts);
            const std::size_t most = random_.below(8) == 0 ? longest : longest / 16;
            serve(cache_, all.subspan(start, 1 + random_.below(most)));
        }
    }
    Cache& cache() { return cache_; }

  private:
    // Two sequences share a beginning when they start at the same place.
    static constexpr std::size_t starts = 100'000;
    static constexpr std::size_t longest = 2048;

  public:
    /// The tokens that requests are made of: not the cache's.
    static constexpr std::size_t input_bytes = (starts + longest) * sizeof(kvstem::Token);

  private:
    Random random_{29};
    Tokens tokens_ = random_.tokens(starts + longest);
    Cache cache_;
};

/// The memory may not creep up: the largest of the samples of the last nine tenths against the
/// first tenth's, after which the pool has long been full; a twentieth more passes as flat. Then
/// everything is evicted, and what the process has more than before it began is weighed: after
/// malloc_trim, and for information before. Without it glibc returns a freed segment only if the
/// process has never freed anything much larger (its threshold for giving memory back grows with
/// what is freed), which is the program's and the allocator's affair.
void memory_soak(Bench& bench, std::size_t page_tokens) {
    constexpr int samples = 10;
    const std::size_t publishes = bench.scaled(10'000'000);
    const std::size_t before = trimmed_resident_bytes();
    Soak soak(2'000'000, page_tokens);
    const auto megabytes = [](std::size_t bytes) { return static_cast<double>(bytes) / 1e6; };
    const double start = megabytes(before + Soak::input_bytes);
    std::vector<double> resident;
    for (int sample = 0; sample < samples; ++sample) {
        soak.publish(publishes / samples);
        resident.push_back(megabytes(trimmed_resident_bytes()) - start);
    }
    require(soak.cache().stats().evicted_pages > soak.cache().pages().capacity_pages(),
            "the soak has not filled its pool");
    const std::string name = name_of(page_tokens);
    const bool target = page_tokens == 16;
    bench.add({"memory-soak", name + " largest / first tenth",
               *std::max_element(resident.begin() + 1, resident.end()), resident.front(), "MB",
               "first tenth", target ? std::optional(1.05) : std::nullopt});
    soak.cache().evict(soak.cache().cached_pages());
    require(soak.cache().cached_pages() == 0, "something could not be evicted");
    bench.add({"memory-soak", name + " evicted, not trimmed", megabytes(resident_bytes()) - start,
               5, "MB", "5 MB"});
    bench.add({"memory-soak", name + " evicted", megabytes(trimmed_resident_bytes()) - start, 5,
               "MB", "5 MB", target ? std::optional(1.0) : std::nullopt});
}

}  // namespace

void memory_rows(Bench& bench) {
    for (const std::size_t page_tokens : page_sizes) {
        if (bench.wants({"memory"})) memory_long(bench, page_tokens);
        if (bench.wants({"memory"})) memory_wide(bench, page_tokens);
    }
    for (const std::size_t page_tokens : page_sizes) {
        if (bench.wants({"memory-cut"})) memory_cut(bench, page_tokens);
    }
    for (const std::size_t page_tokens : page_sizes) {
        if (bench.wants({"memory-soak"})) memory_soak(bench, page_tokens);
    }
}

}  // namespace bench
