// SPDX-License-Identifier: MIT
// Two KV types that know nothing of this library, and what each needs to be cached: one that is
// ours gets members, one that belongs to an engine gets a specialisation of kv_traits.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

#include "kvstem/prefix_cache.hpp"

// [readme:members]
struct MyKv {
    std::vector<float> rows;  // 8 floats for each position

    std::size_t length() const noexcept { return rows.size() / 8; }
    std::size_t bytes() const noexcept { return rows.size() * sizeof(float); }
    MyKv prefix(std::size_t n) const {  // a copy of the first n positions
        return {std::vector<float>(rows.data(), rows.data() + n * 8)};
    }
};

static_assert(kvstem::sliceable_kv_snapshot<MyKv>);  // or the compiler says what is missing
// [/readme:members]

// An engine in the manner of those that save a sequence into a buffer. This code is not ours.
namespace engine {

struct SavedState {
    std::vector<std::uint8_t> buffer;
    int n_past = 0;
};

constexpr std::size_t bytes_per_position = 64;

void forget_after(SavedState& state, int n_past) {
    state.n_past = n_past;
    state.buffer.resize(static_cast<std::size_t>(n_past) * bytes_per_position);
}

SavedState decode(const std::vector<kvstem::Token>& tokens, SavedState state = {}) {
    for (auto i = static_cast<std::size_t>(state.n_past); i < tokens.size(); ++i, ++state.n_past) {
        const auto content = static_cast<std::uint8_t>(tokens[i]);
        state.buffer.insert(state.buffer.end(), bytes_per_position, content);
    }
    return state;
}

}  // namespace engine

// [readme:traits]
template <>
struct kvstem::kv_traits<engine::SavedState> {
    using State = engine::SavedState;
    static std::size_t length(const State& kv) noexcept {
        return static_cast<std::size_t>(kv.n_past);
    }
    static std::size_t bytes(const State& kv) noexcept { return kv.buffer.size(); }
    static void truncate(State& kv, std::size_t n) {
        engine::forget_after(kv, static_cast<int>(n));
    }
};
// [/readme:traits]

int main() {
    const std::vector<kvstem::Token> question{1, 2, 3, 4};
    const std::vector<kvstem::Token> other{1, 2, 3, 9, 9};

    // [readme:use]
    kvstem::PrefixCache<engine::SavedState> cache({.max_bytes = 1 << 20});
    cache.store(question, engine::decode(question));
    auto hit = cache.acquire(other);  // hit->kv holds hit->tokens positions; empty on a miss
    // [/readme:use]
    if (!hit) return 1;
    const auto warm = engine::decode(other, std::move(hit->kv));
    const bool equal = warm.buffer == engine::decode(other).buffer;
    std::printf("engine::SavedState: %zu of %zu positions reused, %s\n", hit->tokens, other.size(),
                equal ? "the same as without" : "NOT the same as without");

    kvstem::PrefixCache<MyKv> mine;
    mine.store(question, MyKv{std::vector<float>(question.size() * 8)});
    std::printf("MyKv: %zu of %zu positions reused\n", mine.peek(other).tokens, other.size());
    return equal && mine.peek(other).tokens == 3 ? 0 : 1;
}
