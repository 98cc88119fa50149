// SPDX-License-Identifier: MIT
// One cache for many tenants: those of one adapter share its system prompt, those with a salt share
// with nobody, not even that, and one of them can be dropped.

#include <cstdio>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "kvstem/namespace.hpp"
#include "kvstem/radix_cache.hpp"
#include "support/tiny_paged_engine.hpp"

using kvstem::Token;
using Cache = kvstem::RadixCache<>;

namespace {

struct Tenant {
    const char* name;
    kvstem::Namespace key;  // what must agree, beside the tokens, before anything is shared
    std::size_t prompt_tokens = 0;
    std::size_t adopted_tokens = 0;  // the cache counts for all; per tenant, a lease tells
};

Token answer(support::TinyPagedEngine& engine, Cache& cache, Tenant& tenant,
             std::span<const Token> prompt) {
    auto [admission, lease] = cache.acquire(prompt, tenant.key);
    if (admission != kvstem::Admission::granted) return -1;
    tenant.prompt_tokens += prompt.size();
    tenant.adopted_tokens += lease.adopted();
    const auto rest = prompt.subspan(lease.adopted());
    const Token next = engine.forward(rest, lease.adopted(), lease.block_table());
    lease.publish(rest);
    return next;
}

std::vector<Token> ask(const Tenant& tenant, int question) {
    std::vector<Token> prompt(64);  // the adapter's system prompt, the same for all
    std::iota(prompt.begin(), prompt.end(), 100);
    for (const char* letter = tenant.name; *letter != '\0'; ++letter) prompt.push_back(*letter);
    prompt.insert(prompt.end(), 20, question);
    return prompt;
}

void print_pages(const Cache& cache) {
    cache.visit_trees([&](const kvstem::Namespace& name, const auto& tree, kvstem::NodeId root) {
        std::size_t pages = 0;
        for (auto node = tree.next_in(root, root); node != kvstem::no_node;
             node = tree.next_in(root, node)) {
            pages += tree.pages(node);
        }
        const std::string salt(name.salt.value_or("none"));
        std::printf("  salt %-9s %zu pages\n", salt.c_str(), pages);
    });
}

}  // namespace

int main() {
    support::TinyPagedEngine engine(256, 16);
    Cache cache({.page_tokens = 16}, kvstem::PagePool(256));
    // [readme:keys]
    Tenant tenants[] = {{"ann", {.adapter = "legal"}},
                        {"bob", {.adapter = "legal"}},
                        {"clinic", {.adapter = "legal", .salt = "7f3a"}},
                        {"bank", {.adapter = "legal", .salt = "91c2"}}};
    // [/readme:keys]
    bool right = true;
    for (const int question : {1, 2}) {
        for (Tenant& tenant : tenants) {
            const std::vector<Token> prompt = ask(tenant, question);
            support::TinyPagedEngine cold(256, 16);
            Cache nothing({.page_tokens = 16}, kvstem::PagePool(256));
            Tenant alone{tenant.name, {}};
            right &= answer(engine, cache, tenant, prompt) == answer(cold, nothing, alone, prompt);
        }
    }
    for (const Tenant& tenant : tenants) {
        std::printf("%-6s adopted %3zu of %3zu prompt tokens\n", tenant.name, tenant.adopted_tokens,
                    tenant.prompt_tokens);
    }
    print_pages(cache);

    // The clinic leaves: its pages go, at once where nobody reads them, and nobody else's do.
    std::printf("drop(clinic): %zu pages\n", cache.drop(tenants[2].key));
    for (const Tenant& tenant : {tenants[2], tenants[3]}) {
        std::printf("%-6s has %zu tokens cached\n", tenant.name,
                    cache.peek(ask(tenant, 1), tenant.key).cached_tokens);
    }
    std::printf("answers are %s as without a cache\n", right ? "the same" : "NOT the same");
    return right && cache.audit().ok() ? 0 : 1;
}
