// SPDX-License-Identifier: MIT
// Leases by hand: what an engine does whose attention reads KV through a block table.
#include <cstdio>
#include <span>
#include <vector>

#include "kvstem/kvstem.hpp"

using kvstem::Admission;
using kvstem::PageId;
using kvstem::Token;

namespace {

constexpr std::size_t page_tokens = 4;

/// An engine's KV memory: here the "row" of a position is just the token it was computed from.
struct PagedEngine {
    std::vector<Token> rows;
    std::size_t computed = 0;

    explicit PagedEngine(std::size_t pages) : rows(pages * page_tokens) {}

    /// Computes the rows of `tokens` at the positions from `start` on, through the block table.
    void forward(std::span<const Token> tokens, std::size_t start, std::span<const PageId> table) {
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            const std::size_t position = start + i;
            const PageId page = table[position / page_tokens];
            rows[kvstem::index_of(page) * page_tokens + position % page_tokens] = tokens[i];
            ++computed;
        }
    }
};

// [readme:serve]
// Serves one request: computes what is not cached yet, and leaves it to later requests.
bool serve(PagedEngine& engine, kvstem::RadixCache<>& cache, std::span<const Token> prompt) {
    auto [admission, lease] = cache.acquire(prompt);    // adopts, pins, takes pages for the rest
    if (admission != Admission::granted) return false;  // exhausted: later; never_fits: never

    const auto rest = prompt.subspan(lease.adopted());  // at least one token
    engine.forward(rest, lease.adopted(), lease.block_table());
    lease.wrote(rest);  // these rows exist now
    lease.publish();    // whole pages, for whoever begins like this

    for (Token token = 100; token < 103; ++token) {  // decoding: one row a step
        if (lease.grow_to(lease.written() + 1) != Admission::granted) return false;
        engine.forward({&token, 1}, lease.written(), lease.block_table());
        lease.wrote({&token, 1});
    }
    lease.publish();
    return true;
}  // the lease dies: what it did not publish is free again, on every path
// [/readme:serve]

}  // namespace

int main() {
    PagedEngine engine(16);
    kvstem::RadixCache<> cache({.page_tokens = page_tokens}, kvstem::PagePool(16));
    const std::vector<Token> system{1, 2, 3, 4, 5, 6, 7, 8};
    for (const Token user : {20, 21, 22}) {
        std::vector<Token> prompt = system;
        prompt.insert(prompt.end(), {user, user + 10});
        const std::size_t before = engine.computed;
        if (!serve(engine, cache, prompt)) return 1;
        std::printf("user %d: %zu rows for a prompt of %zu and an answer of 3\n", user,
                    engine.computed - before, prompt.size());
    }
    const auto stats = cache.stats();
    std::printf("%zu pages cached, %zu free; %llu of %llu prompt tokens adopted\n",
                stats.cached_pages, stats.free_pages,
                static_cast<unsigned long long>(stats.hit_tokens),
                static_cast<unsigned long long>(stats.queried_tokens));
    return cache.audit().ok() ? 0 : 1;
}
