// SPDX-License-Identifier: MIT
// The smallest use of a PrefixCache: the prefill of an engine that computes only what is new.

#include <algorithm>
#include <cstdio>
#include <span>
#include <utility>
#include <vector>

#include "kvstem/prefix_cache.hpp"
#include "kvstem/reference/decoder.hpp"
#include "kvstem/reference/kv.hpp"

using namespace kvstem::reference;
using kvstem::Token;

// [readme:prefill]
using Cache = kvstem::PrefixCache<ContiguousKv>;  // ContiguousKv: your engine's KV type

// Fills `kv` with a prompt, computing only what no earlier prompt began with; returns its logits.
std::vector<float> prefill(Decoder& engine, Cache& cache, std::span<const Token> prompt,
                           ContiguousKv& kv) {
    if (auto hit = cache.acquire(prompt)) {  // a copy of exactly the positions that agree
        kv = std::move(hit->kv);
        if (hit->tokens == prompt.size() && hit->logits) return *hit->logits;
        kv.truncate(std::min(hit->tokens, prompt.size() - 1));  // no logits: run the last token
    }
    auto computed = engine.forward_batch(prompt.subspan(kv.length()), kv.length(), kv);
    std::vector<float> logits(computed.last().begin(), computed.last().end());
    cache.store(prompt, kv, logits);
    return logits;
}
// [/readme:prefill]

int main() {
    Decoder engine(Model::from_seed(presets::llama_tiny(), 42));
    Cache cache({.max_entries = 100});

    // Four prompts that begin alike, as prompts with one system prompt do.
    std::vector<Token> system(48);
    for (std::size_t i = 0; i < system.size(); ++i) system[i] = static_cast<Token>(i * 7 % 64);
    std::vector<std::vector<Token>> prompts(4, system);
    prompts[1].insert(prompts[1].end(), {3, 1, 4});
    prompts[2].insert(prompts[2].end(), {2, 7, 1, 8});
    prompts[3].insert(prompts[3].end(), {2, 7, 1, 8});

    bool equal = true;
    for (const std::vector<Token>& prompt : prompts) {
        ContiguousKv warm_kv(engine.config().kv_shape());
        const auto before = engine.tokens_computed();
        const std::vector<float> warm = prefill(engine, cache, prompt, warm_kv);
        const auto computed = engine.tokens_computed() - before;
        std::printf("prompt of %zu tokens: %zu computed\n", prompt.size(),
                    static_cast<std::size_t>(computed));

        Cache nothing;
        ContiguousKv cold_kv(engine.config().kv_shape());
        equal = equal && warm == prefill(engine, nothing, prompt, cold_kv) && warm_kv == cold_kv;
    }
    std::printf("logits and KV are %s as without the cache\n", equal ? "the same" : "NOT the same");
    return equal ? 0 : 1;
}
