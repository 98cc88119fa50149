// SPDX-License-Identifier: MIT
// Uses the caches, the engine forms, the policies, ghosts, the decoder and replay once, so that their
// templates are there, and throws and catches nothing itself: built with -fno-exceptions and
// -fno-rtti, too. With the argument `mistake` it makes one.

#include <cstddef>
#include <cstdio>
#include <span>
#include <sstream>
#include <string_view>
#include <vector>

#include "kvstem/ghost.hpp"
#include "kvstem/kvstem.hpp"
#include "kvstem/picture.hpp"
#include "kvstem/policy/fifo.hpp"
#include "kvstem/policy/hazard.hpp"
#include "kvstem/policy/length_aware.hpp"
#include "kvstem/policy/lfu.hpp"
#include "kvstem/policy/lfu_aging.hpp"
#include "kvstem/policy/priority.hpp"
#include "kvstem/policy/s3_fifo.hpp"
#include "kvstem/policy/slru.hpp"
#include "kvstem/prefix_cached_engine.hpp"
#include "kvstem/reference/batcher.hpp"
#include "kvstem/reference/engines.hpp"
#include "kvstem/reference/presets.hpp"
#include "kvstem/replay/replay.hpp"
#include "kvstem/replay/trace.hpp"
#include "kvstem/shared_radix_cache.hpp"

namespace {

using kvstem::Token;
using Tokens = std::vector<Token>;
namespace reference = kvstem::reference;

int failures = 0;
void expect(bool holds, const char* what) {
    if (holds) return;
    std::printf("not so: %s\n", what);
    ++failures;
}

Tokens counted(std::size_t n) {
    Tokens tokens(n);
    for (std::size_t i = 0; i < n; ++i) tokens[i] = static_cast<Token>(i % 60);
    return tokens;
}

constexpr auto copy_nothing = [](kvstem::PageId, kvstem::PageId, std::size_t) noexcept {};

void snapshots() {
    kvstem::PrefixCache<reference::ContiguousKv> cache({.max_entries = 2});
    reference::Decoder decoder(reference::Model::from_seed(reference::presets::llama_tiny(), 1));
    reference::ContiguousKv kv(decoder.config().kv_shape());
    const Tokens prompt = counted(12);
    decoder.forward_batch(std::span<const Token>(prompt), 0, kv);
    cache.store(prompt, kv, std::vector<float>{1, 2});
    expect(cache.peek(prompt).has_logits, "a stored prompt has logits");
    expect(cache.acquire(counted(7), {.salt = "s"}) == std::nullopt, "salts do not share");
    expect(cache.acquire(counted(7))->kv.length() == 7, "a snapshot is cut");
    expect(cache.take(prompt)->moved, "a whole snapshot is moved out");
    expect(cache.audit().ok(), "the snapshots are in order");
}

template <class Policy>
void pages() {
    kvstem::RadixCache<kvstem::PagePool, Policy> cache({.page_tokens = 4}, kvstem::PagePool(16));
    for (std::size_t n = 9; n < 40; n += 5) {
        auto [admission, lease] = cache.acquire(counted(n), {}, copy_nothing);
        expect(admission == kvstem::Admission::granted, "there is room for one request");
        const Tokens prompt = counted(n);
        lease.publish(std::span<const Token>(prompt).subspan(lease.written()));
        lease.switch_to_tree();
        auto fork = lease.fork(copy_nothing);
        if (fork)
            expect(fork.lease.cut_back(5, copy_nothing) != kvstem::Admission::never_fits, "cut");
    }
    auto sliding = cache.acquire_sliding(counted(6), {.window_tokens = 4}, {.adapter = "a"});
    if (sliding) {
        sliding.lease.wrote(counted(6));
        sliding.lease.slide();
    }
    expect(cache.audit().ok(), "the pages are in order");
    expect(!kvstem::to_text(cache).empty(), "a cache has a picture");
}

template <class Engine>
void engine(Engine&& behind) {
    kvstem::PrefixCachedEngine cached(behind);
    const auto cold = cached.generate(counted(20), {.max_new_tokens = 4});
    const auto warm = cached.generate(counted(20), {.max_new_tokens = 4});
    expect(cold.tokens == warm.tokens && warm.reused_tokens != 0, "warm is cold, and cheaper");
    expect(cached.audit().ok(), "the engine's cache is in order");
}

void batch() {
    reference::Decoder decoder(reference::Model::from_seed(reference::presets::llama_tiny(), 1));
    kvstem::RadixCache<> cache({.page_tokens = 4}, kvstem::PagePool(16));
    reference::PagedKvStore store(decoder.config().kv_shape(), 16, 4);
    reference::Batcher batcher(cache, store, decoder);
    const auto id = batcher.submit({.prompt = counted(10), .max_new_tokens = 3});
    batcher.run();
    expect(batcher.result(id).tokens.size() == 3, "a job runs to its end");
}

void traces() {
    std::istringstream lines("{\"tokens\": [1, 2, 3]}\n{\"tokens\": [1, 2, 4]}\n");
    const auto trace = kvstem::replay::TraceReader().read(lines);
    kvstem::replay::Replay<kvstem::LeastRecentlyUsed> replay(trace, {.capacity_blocks = 8});
    expect(replay.run().whole.hit_blocks == 2, "a replay hits what was there");
    kvstem::GhostCache ghosts({.capacity_pages = 8, .page_tokens = 1});
    ghosts.observe(counted(5));
    expect(ghosts.rates().pages == 5, "ghosts observe whole prompts");
}

void shared() {
    kvstem::SharedRadixCache<> cache({.page_tokens = 4}, kvstem::PagePool(16));
    auto [admission, lease] = cache.acquire_for(counted(9), std::chrono::seconds(0));
    expect(admission == kvstem::Admission::granted, "a shared cache grants");
    lease.wrote(counted(9));
    expect(lease.publish() == 2, "a shared lease publishes whole pages");
}

}  // namespace

int main(int argc, char** argv) {
    if (argc > 1 && std::string_view(argv[1]) == "mistake") {
        kvstem::PagePool pool(8);
        pool.retain(kvstem::PageId{3});
        return 0;  // never reached
    }
    snapshots();
    pages<kvstem::LeastRecentlyUsed>();
    pages<kvstem::FirstInFirstOut>();
    pages<kvstem::LeastFrequentlyUsed>();
    pages<kvstem::FrequencyWithAgeing>();
    pages<kvstem::LengthAware>();
    pages<kvstem::SegmentedLru>();
    pages<kvstem::S3Fifo>();
    pages<kvstem::PriorityThenRecency<>>();
    pages<kvstem::Hazard>();
    const auto model = std::make_shared<const reference::Model>(
        reference::Model::from_seed(reference::presets::llama_tiny(), 1));
    engine(reference::PagedEngine(model, 64, 4));
    engine(reference::RowEngine(model));
    engine(reference::StateEngine(model));
    batch();
    traces();
    shared();
    std::printf("%s\n", failures == 0 ? "all as it should be" : "something is wrong");
    return failures == 0 ? 0 : 1;
}
