// SPDX-License-Identifier: MIT
// What a PrefixCachedEngine that never evicts reuses: the oracle of the property tests.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "support/counting_kv.hpp"

namespace kvstem_test {

/// All sequences that were kept since the last clear, each looked at for every prompt. Namespaces
/// are numbers.
struct NaiveReuse {
    enum class Keeps { pages, rows, states };
    struct Sequence {
        std::size_t name;
        Tokens tokens;
    };

    Keeps keeps;
    std::size_t block_tokens;   // of pages and rows
    std::size_t most_blocks;    // of one sequence
    std::size_t most_cut_rows;  // of a state
    std::vector<Sequence> kept{};

    void keep(std::size_t name, Tokens tokens) {
        if (keeps != Keeps::states) {
            tokens.resize(std::min(tokens.size() / block_tokens, most_blocks) * block_tokens);
        }
        kept.push_back({name, tokens});
    }
    void drop(std::size_t name) {
        std::erase_if(kept, [&](const Sequence& s) { return s.name == name; });
    }

    /// Of a prompt's positions but the last, those that agree with a kept sequence.
    static std::size_t agreeing(const Sequence& s, const Tokens& prompt, std::size_t name) {
        std::size_t n = 0;
        if (s.name != name) return 0;
        while (n < s.tokens.size() && n + 1 < prompt.size() && s.tokens[n] == prompt[n]) ++n;
        return n;
    }
    [[nodiscard]] std::size_t whole_blocks(const Sequence& s, const Tokens& prompt,
                                           std::size_t name) const {
        return agreeing(s, prompt, name) / block_tokens * block_tokens;
    }
    [[nodiscard]] std::size_t reusable(const Sequence& s, const Tokens& prompt,
                                       std::size_t name) const {
        const std::size_t n = agreeing(s, prompt, name);
        if (keeps == Keeps::pages) return whole_blocks(s, prompt, name);
        if (keeps == Keeps::rows) return n;
        if (s.name == name && s.tokens == prompt) return prompt.size();  // with its logits
        return s.tokens.size() - n <= most_cut_rows ? n : 0;
    }
    [[nodiscard]] std::size_t reusable(const Tokens& prompt, std::size_t name) const {
        std::size_t most = 0;
        for (const Sequence& s : kept) most = std::max(most, reusable(s, prompt, name));
        return most;
    }
};

}  // namespace kvstem_test
