// SPDX-License-Identifier: MIT
// A windowed model in a pool of the documented size answers as one that keeps every page.
#include <cstddef>
#include <set>
#include <span>
#include <vector>

#include "catch.hpp"
#include "kvstem/radix_cache.hpp"
#include "kvstem/reference/decoder.hpp"
#include "kvstem/reference/paged_kv.hpp"
#include "kvstem/reference/presets.hpp"
#include "kvstem/reference/sampler.hpp"
#include "support/reference.hpp"

using namespace kvstem;
using namespace kvstem::reference;

namespace {

/// Decodes `answer` tokens greedily, each from the last token's logits; what happens to the lease
/// after each step is the caller's.
template <class Room>
std::vector<Token> answer(Decoder& decoder, PagedKvStore& store, RadixCache<>::Lease& lease,
                          std::span<const Token> prompt, std::size_t n, Room&& room) {
    Sampler sampler{SamplingParams{}};
    std::vector<Token> out;
    std::vector<Token> step(prompt.begin() + static_cast<std::ptrdiff_t>(lease.adopted()),
                            prompt.end());
    while (out.size() < n) {
        room(lease.written() + step.size());
        PagedKvView view(store, lease.block_table(), lease.written());
        const Logits logits =
            decoder.forward_batch(step, lease.written(), view, LogitsFor::last_token);
        lease.wrote(step);
        if (out.empty()) lease.publish();
        step.assign(1, sampler.sample(logits.last()));
        out.push_back(step.front());
        if (out.size() < n) room(lease.written());
    }
    return out;
}

/// Distinct pages that a lease's block table names.
std::size_t named_pages(const RadixCache<>::Lease& lease) {
    std::set<PageId> named(lease.block_table().begin(), lease.block_table().end());
    named.erase(no_page);
    return named.size();
}

}  // namespace

TEST_CASE("a windowed model answers 20,000 tokens in a pool sized by the bound", "[W1][W2][X1]") {
    const std::size_t page = GENERATE(as<std::size_t>{}, 1, 4);
    const Model model = Model::from_seed(presets::windowed_tiny(), 7);
    const std::size_t window = model.config().sliding_window();
    REQUIRE(window == 8);
    const std::size_t n = 20'000;
    const auto prompt = support::some_tokens(37, model.config().vocab_size, 5);

    // Every page kept.
    Decoder plain(model);
    PagedKvStore all(model.config().kv_shape(), (n + 40) / page + 2, page);
    RadixCache<> keeping({.page_tokens = page}, PagePool(all.capacity_pages()));
    auto kept = keeping.acquire(prompt);
    const auto expected = answer(plain, all, kept.lease, prompt, n, [&](std::size_t positions) {
        REQUIRE(kept.lease.grow_to(positions + 1) == Admission::granted);
    });

    // The bound, and not a page more; then again, warm.
    const SlidingWindow slide{.window_tokens = window};
    const std::size_t most = (prompt.size() + page - 1) / page + slide.bound_pages(page);
    PagedKvStore few(model.config().kv_shape(), most, page);
    RadixCache<> sliding({.page_tokens = page}, PagePool(most));
    Decoder decoder(model);
    for (const std::size_t adopted : {std::size_t{0}, (prompt.size() - 1) / page * page}) {
        auto request = sliding.acquire_sliding(prompt, slide);
        auto& lease = request.lease;
        REQUIRE(request.admission == Admission::granted);
        REQUIRE(lease.adopted() == adopted);
        const auto tokens = answer(decoder, few, lease, prompt, n, [&](std::size_t) {
            if (lease.published() != 0) lease.slide();
            // The whole bound is held from the first token to the last: a page that was lost on
            // the way would be held, but stand in no table.
            REQUIRE(sliding.free_pages() == 0);
            if (lease.written() % 101 == 0) REQUIRE(named_pages(lease) == most);
        });
        CHECK(tokens == expected);
        CHECK(sliding.audit().ok());
        lease.release();
        CHECK(sliding.free_pages() + prompt.size() / page == most);
    }
}

TEST_CASE("a model that mixes full and windowed layers may not slide", "[W1]") {
    CHECK(presets::mixed_window_tiny().sliding_window() == 0);
    CHECK(presets::llama_tiny().sliding_window() == 0);
}
