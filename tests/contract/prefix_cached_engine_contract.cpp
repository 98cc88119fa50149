// SPDX-License-Identifier: MIT
// What PrefixCachedEngine and the concepts of engines promise to the compiler. Nothing here runs.

#include <cstddef>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kvstem/prefix_cached_engine.hpp"
#include "kvstem/reference/engines.hpp"
#include "kvstem/window.hpp"
#include "support/toy_engines.hpp"

namespace {

using namespace kvstem_test;
using kvstem::EngineForm;
using kvstem::PrefixCachedEngine;

template <class Engine, bool Paged, bool Row, bool State>
inline constexpr bool is_seen_as =
    kvstem::paged_engine<Engine> == Paged && kvstem::row_engine<Engine> == Row &&
    kvstem::state_engine<Engine> == State &&
    kvstem::cacheable_engine<Engine> == (Paged || Row || State);

static_assert(is_seen_as<ToyPagedEngine, true, false, false>);
static_assert(is_seen_as<ToyCopyingPagedEngine, true, false, false>);
static_assert(is_seen_as<ToyRowEngine, false, true, false>);
static_assert(is_seen_as<ToyStateEngine, false, false, true>);
static_assert(is_seen_as<ToyContiguousEngine, false, false, false>);
static_assert(is_seen_as<kvstem::reference::PagedEngine, true, false, false>);
static_assert(is_seen_as<kvstem::reference::RowEngine, false, true, false>);
static_assert(is_seen_as<kvstem::reference::StateEngine, false, false, true>);
static_assert(is_seen_as<int, false, false, false>);
static_assert(is_seen_as<void, false, false, false>);
static_assert(is_seen_as<std::vector<int>, false, false, false>);

static_assert(kvstem::has_copy_rows<ToyCopyingPagedEngine> &&
              !kvstem::has_copy_rows<ToyPagedEngine>);

// Whoever offers several forms is served by the one that copies least.
struct RowAndState : ToyRowEngine {
    std::vector<Row> save_state();
    void load_state(const std::vector<Row>& state);
    bool cut(std::size_t n);
};
static_assert(kvstem::state_engine<RowAndState> &&
              kvstem::engine_form<RowAndState> == EngineForm::row);

// Members of another form that are there by chance do no harm.
struct RowEngineWithPages : ToyRowEngine {
    [[nodiscard]] std::size_t page_tokens() const;
};
static_assert(kvstem::engine_form<RowEngineWithPages> == EngineForm::row);

// States of several kinds: containers of plain values, a size by member, moved and not copied.
struct MovedState {
    MovedState(MovedState&&) noexcept;
    [[nodiscard]] std::size_t bytes() const noexcept;
};
struct StateWithoutSize {};
static_assert(kvstem::saved_state<std::vector<std::byte>>);
static_assert(kvstem::saved_state<std::string>);
static_assert(kvstem::saved_state<MovedState>);
static_assert(!kvstem::saved_state<StateWithoutSize>);
static_assert(!kvstem::saved_state<const std::vector<std::byte>&>);
struct MoveOnlyStateEngine : ToyContiguousEngine {
    MovedState save_state();
    void load_state(const MovedState& state);
    bool cut(std::size_t n);
};
static_assert(kvstem::engine_form<MoveOnlyStateEngine> == EngineForm::state);

// The wrapper is neither copied nor moved: leases and the engine are referred to.
template <class Engine>
inline constexpr bool holds_still = !std::is_copy_constructible_v<PrefixCachedEngine<Engine>> &&
                                    !std::is_move_constructible_v<PrefixCachedEngine<Engine>> &&
                                    !std::is_copy_assignable_v<PrefixCachedEngine<Engine>>;
static_assert(holds_still<ToyPagedEngine> && holds_still<ToyRowEngine> &&
              holds_still<ToyStateEngine>);
static_assert(
    !std::is_constructible_v<PrefixCachedEngine<ToyRowEngine>, ToyRowEngine>);  // no temporary

// What is said not to throw.
using Cached = PrefixCachedEngine<ToyRowEngine>;
static_assert(noexcept(std::declval<const Cached&>().peek({})));
static_assert(noexcept(std::declval<Cached&>().clear_cache()));
static_assert(noexcept(std::declval<Cached&>().drop({})));
static_assert(noexcept(std::declval<const Cached&>().stats()));

// Callbacks that say nothing, and that say whether to go on.
static_assert(kvstem::token_callback<void (*)(kvstem::Token)>);
static_assert(kvstem::token_callback<bool (*)(kvstem::Token)>);
static_assert(!kvstem::token_callback<void (*)()>);
static_assert(!kvstem::token_callback<std::string (*)(kvstem::Token)>);
static_assert(kvstem::token_sampler<kvstem::Token (*)(std::span<const float>)>);
static_assert(!kvstem::token_sampler<void (*)(std::span<const float>)>);

static_assert(kvstem::first_position_in_window(10, 4) == 7);
static_assert(noexcept(kvstem::longest_window_cut(0, 0, 0, 0)));

}  // namespace
