// SPDX-License-Identifier: MIT
// The program that every consumer project builds: a KV type of its own, one store, one hit.

#include "kvstem/kvstem.hpp"

#include <cstddef>
#include <cstdio>
#include <vector>

namespace {

struct ToyKv {
    std::size_t rows = 0;

    [[nodiscard]] std::size_t length() const noexcept { return rows; }
    [[nodiscard]] std::size_t bytes() const noexcept { return rows * sizeof(float); }
    [[nodiscard]] ToyKv prefix(std::size_t n) const { return {n}; }
};

}  // namespace

int main() {
    kvstem::PrefixCache<ToyKv> cache;
    const std::vector<kvstem::Token> stored{1, 2, 3};
    const std::vector<kvstem::Token> prompt{1, 2, 9};
    cache.store(stored, ToyKv{3});
    const auto hit = cache.acquire(prompt);
    std::printf("reused %zu of %zu tokens\n", hit ? hit->tokens : 0, prompt.size());
    return hit && hit->kv.rows == 2 ? 0 : 1;
}
