// SPDX-License-Identifier: MIT
// PrefixCachedEngine for engines that can only save, load and cut the state of a whole sequence.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "../config.hpp"
#include "../engine_concepts.hpp"
#include "../errors.hpp"
#include "../kv_traits.hpp"
#include "../namespace.hpp"
#include "../prefix_cache.hpp"
#include "../token.hpp"

namespace kvstem::inline KVSTEM_ABI::detail {

/// A saved state as a KV type of PrefixCache. It cannot be cut where it lies, only in the engine
/// after it was loaded; so a prefix of it is the same state with the order to cut. Nothing is ever
/// copied: the cache and whoever was handed a prefix share the state.
template <class State>
class SharedState {
  public:
    SharedState(State&& state, std::size_t length)
        : held_(std::make_shared<Held>(std::move(state))), length_(length) {}

    [[nodiscard]] std::size_t length() const noexcept { return length_; }
    [[nodiscard]] std::size_t bytes() const noexcept { return held_->bytes; }
    [[nodiscard]] const State& state() const noexcept { return held_->state; }

    [[nodiscard]] SharedState prefix(std::size_t n) const {
        SharedState shared(*this);
        shared.length_ = n;
        return shared;
    }
    /// What the state says, if it says anything, less what the engine has refused.
    [[nodiscard]] std::size_t longest_cut(std::size_t n) const noexcept {
        std::size_t cut = n;
        if constexpr (has_longest_cut<State>) {
            cut = std::min<std::size_t>(n, kv_traits<State>::longest_cut(held_->state, n));
        }
        return cut > held_->refused ? cut : 0;
    }
    /// The engine did not cut this state to `n`. Lengths below are not tried either: a window that
    /// is gone at n is gone there as well, and for other states it is the safe side.
    void refuse_cuts_to(std::size_t n) noexcept { held_->refused = std::max(held_->refused, n); }

  private:
    struct Held {
        explicit Held(State&& saved) : state(std::move(saved)), bytes(bytes_of(state)) {}

        static std::size_t bytes_of(const State& state) noexcept {
            if constexpr (has_bytes<State>) {
                return kv_traits<State>::bytes(state);
            } else {
                return state.size() * sizeof(*state.data());
            }
        }

        State state;
        std::size_t bytes;
        std::size_t refused = 0;  // no cut to this length or below it
    };

    std::shared_ptr<Held> held_;
    std::size_t length_;
};

template <class Engine>
class StateForm {
  public:
    using State = decltype(std::declval<Engine&>().save_state());
    using Cache = PrefixCache<SharedState<State>>;
    using Tokens = std::span<const Token>;

    struct Request {
        std::size_t reused = 0;
        bool has_logits = false;
        std::size_t stored_tokens = 0;  // of this sequence, stored so far
    };

    template <class Options>
    StateForm(Engine& engine, const Options& options)
        : engine_(engine), cache_({options.max_snapshots, options.max_bytes}) {
        if (options.max_snapshots == 0 || options.max_bytes == 0) {
            fail<InvalidArgument>(
                "a cache of %zu bytes and %zu snapshots is too small for one snapshot",
                options.max_bytes, options.max_snapshots);
        }
    }

    /// Loads the state of the longest cached prefix. The whole prompt is one only with its logits;
    /// otherwise its last token has to run. An engine that refuses a cut is offered the next best,
    /// and never that cut again: each turn of the loop rules out a length of one entry.
    [[nodiscard]] Request start(Tokens prompt, const Namespace& name, std::vector<float>& logits) {
        for (;;) {
            const SnapshotMatch match = cache_.peek(prompt, name);
            const bool whole = match.tokens == prompt.size() && match.has_logits;
            auto hit = cache_.acquire(whole ? prompt : prompt.first(prompt.size() - 1), name);
            if (!hit) return {};
            engine_.load_state(hit->kv.state());
            // All entries are stored with logits, so a match of a whole entry has them.
            const std::size_t stored = hit->logits ? hit->tokens : 0;
            if (whole && hit->logits) logits = std::move(*hit->logits);
            if (stored != 0 || engine_.cut(hit->tokens)) return {hit->tokens, whole, stored};
            hit->kv.refuse_cuts_to(hit->tokens);
        }
    }

    template <class Use>
    void compute(Request&, Tokens tokens, std::size_t start, Use&& use) {
        use(engine_.forward(tokens, start));
    }

    [[nodiscard]] bool make_room(Request&, std::size_t) const noexcept { return true; }

    void store(Request& request, Tokens sequence, std::span<const float> logits,
               const Namespace& name) {
        if (sequence.size() <= request.stored_tokens) return;
        SharedState<State> state(engine_.save_state(), sequence.size());
        cache_.store(sequence, std::move(state), std::vector<float>(logits.begin(), logits.end()),
                     name);
        request.stored_tokens = sequence.size();
    }

    [[nodiscard]] std::size_t peek(Tokens prompt, const Namespace& name) const noexcept {
        const SnapshotMatch match = cache_.peek(prompt, name);
        if (match.tokens < prompt.size() || match.has_logits) return match.tokens;
        return prompt.empty() ? 0 : cache_.peek(prompt.first(prompt.size() - 1), name).tokens;
    }
    void clear() noexcept { cache_.clear(); }
    std::size_t drop(const Namespace& name) noexcept { return cache_.drop(name); }

    template <class Stats>
    void fill_in(Stats& stats) const noexcept {
        const PrefixCacheStats cache = cache_.stats();
        stats.stored_blocks = cache.stored - cache.replaced;
        stats.evicted_blocks = cache.evictions;
        stats.blocks = cache.entries;
        stats.capacity_blocks = cache_.capacity().max_entries;
        stats.bytes = cache.bytes;
    }
    [[nodiscard]] AuditReport audit() const { return cache_.audit(); }

  private:
    Engine& engine_;
    Cache cache_;
};

}  // namespace kvstem
