// SPDX-License-Identifier: MIT
// What an engine offers so that PrefixCachedEngine can skip work for it: three forms, each a list
// of named requirements.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

#include "config.hpp"
#include "kv_traits.hpp"
#include "token.hpp"

namespace kvstem::inline KVSTEM_ABI {

// Members that every engine has:
//
// | member                   | meaning                                                           |
// | ------------------------ | ----------------------------------------------------------------- |
// | `vocab_size() const`     | tokens are 0 … vocab_size − 1, and logits have that many values   |
// | `max_context() const`    | positions 0 … max_context − 1 exist                               |
// | `forward(tokens, start)` | computes the tokens at the positions from `start` on, keeps their |
// |                          | KV rows, and returns the logits after the last of them            |
//
// `tokens` is a `std::span<const Token>` and never empty. The logits are anything that converts to
// `std::span<const float>`; they are copied at once. At `start` 0 a new sequence begins, whatever
// came before; otherwise the positions below `start` are there, and what the engine holds from
// `start` on belongs to a sequence that is over. An engine may throw whatever it likes, anywhere;
// it must only be able to begin anew at the next call.

template <class Engine>
concept has_vocab_size = requires(const Engine& engine) {
    { engine.vocab_size() } -> std::convertible_to<std::size_t>;
};
template <class Engine>
concept has_max_context = requires(const Engine& engine) {
    { engine.max_context() } -> std::convertible_to<std::size_t>;
};
template <class Engine>
concept has_forward = requires(Engine& engine, std::span<const Token> tokens, std::size_t start) {
    { engine.forward(tokens, start) } -> std::convertible_to<std::span<const float>>;
};

// ── Paged: attention reads KV through a block table ──

template <class Engine>
concept has_forward_over_pages = requires(Engine& engine, std::span<const Token> tokens,
                                          std::size_t start, std::span<const PageId> block_table) {
    { engine.forward(tokens, start, block_table) } -> std::convertible_to<std::span<const float>>;
};
template <class Engine>
concept has_page_tokens = requires(const Engine& engine) {
    { engine.page_tokens() } -> std::convertible_to<std::size_t>;
};
template <class Engine>
concept has_capacity_pages = requires(const Engine& engine) {
    { engine.capacity_pages() } -> std::convertible_to<std::size_t>;
};
template <class Engine>
concept has_page_bytes = requires(const Engine& engine) {
    { engine.page_bytes() } -> std::convertible_to<std::size_t>;
};
template <class Engine>
concept has_copy_rows = requires(Engine& engine, PageId from, PageId to, std::size_t rows) {
    engine.copy_rows(from, to, rows);
};

template <class Engine>
concept has_sliding_window = requires(const Engine& engine) {
    { engine.sliding_window() } -> std::convertible_to<std::size_t>;
};

/// An engine with memory for `capacity_pages()` page groups of `page_tokens()` positions and
/// `page_bytes()` bytes, which attends over them in place: `forward(tokens, start, block_table)`,
/// where position p lies in page block_table[p / P]. It writes rows only at the positions it
/// computes.
/// Optional: `copy_rows(from, to, rows)`, which copies the first rows of a page group in every
/// layer; with it a prefix that ends inside a page is reused to the token. Optional:
/// `sliding_window()`, W if every layer attends to the last W positions and no further, else 0.
/// With it an answer may, if the wrapper is told so, hold no more than its prompt and a bound
/// (SlidingWindow), however long it is; the block table then names no_page behind the window.
template <class Engine>
concept paged_engine =
    has_vocab_size<Engine> && has_max_context<Engine> && has_forward_over_pages<Engine> &&
    has_page_tokens<Engine> && has_capacity_pages<Engine> && has_page_bytes<Engine>;

// ── Rows: the engine has its own contiguous KV, which can be read and written ──

template <class Engine>
concept has_row_bytes = requires(const Engine& engine) {
    { engine.row_bytes() } -> std::convertible_to<std::size_t>;
};
template <class Engine>
concept has_read_rows =
    requires(Engine& engine, std::size_t begin, std::size_t end, std::span<std::byte> out) {
        { engine.read_rows(begin, end, out) } -> std::convertible_to<std::size_t>;
    };
template <class Engine>
concept has_write_rows =
    requires(Engine& engine, std::size_t begin, std::size_t end, std::span<const std::byte> in) {
        engine.write_rows(begin, end, in);
    };

/// An engine that owns the KV of one sequence and lets its rows out and in again. The KV of one
/// position, over all layers, takes `row_bytes()` bytes, and position follows position.
///
/// | member                       | meaning                                                       |
/// | ---------------------------- | ------------------------------------------------------------- |
/// | `read_rows(begin, end, out)` | copies the rows of [begin, end) to `out` and returns how many |
/// |                              | bytes they take; writes nothing if that is not `out.size()`   |
/// | `write_rows(begin, end, in)` | the rows of [begin, end) are these; as with `forward`, what   |
/// |                              | the engine holds from `begin` on is over                      |
template <class Engine>
concept row_engine = has_vocab_size<Engine> && has_max_context<Engine> && has_forward<Engine> &&
                     has_row_bytes<Engine> && has_read_rows<Engine> && has_write_rows<Engine>;

// ── State: a whole sequence's state can be saved, loaded and cut, and nothing else ──

/// What an engine saves: it moves without throwing and says how many bytes it has, by `bytes()` or
/// kv_traits, or as a container of plain values does. Optional: `longest_cut(n)`, see kv_traits.
template <class State>
concept saved_state = std::is_object_v<State> && has_nothrow_move<State> &&
                      (has_bytes<State> || requires(const State& state) {
                          { state.size() } -> std::convertible_to<std::size_t>;
                          { *state.data() };
                      });

template <class Engine>
concept has_save_state = requires(Engine& engine) {
    { engine.save_state() } -> saved_state;
};
template <class Engine>
concept has_load_state =
    requires(Engine& engine,
             const std::remove_cvref_t<decltype(std::declval<Engine&>().save_state())>& state) {
        engine.load_state(state);
    };
template <class Engine>
concept has_cut = requires(Engine& engine, std::size_t n) {
    { engine.cut(n) } -> std::same_as<bool>;
};

/// An engine whose KV cannot be looked into, as behind llama_state_seq_get_data and
/// llama_memory_seq_rm.
///
/// | member              | meaning                                                                |
/// | ------------------- | ---------------------------------------------------------------------- |
/// | `save_state()`      | the state of the sequence after all tokens so far, as a value          |
/// | `load_state(state)` | that sequence goes on; takes a `const` state, which stays as it is     |
/// | `cut(n)`            | forgets the positions from n on; or returns false, if the state cannot |
/// |                     | be cut there (a window that has slid, a recurrent layer)               |
///
/// `forward` is called with `start` = 0, or with exactly the positions the engine holds.
template <class Engine>
concept state_engine = has_vocab_size<Engine> && has_max_context<Engine> && has_forward<Engine> &&
                       has_save_state<Engine> && has_load_state<Engine> && has_cut<Engine>;

// ── Which one ──

/// The three forms, cheapest reuse first. An engine that offers several is served by the first.
enum class EngineForm {
    paged,  ///< pages are adopted where they are: nothing is copied
    row,    ///< rows are copied in and out, in blocks
    state   ///< whole states are loaded and cut
};

namespace detail {

/// The form that an engine has, or, if it has none yet, the one it seems to be meant for: the
/// compiler then names what that one lacks, not what an engine of each other form would have.
template <class Engine>
consteval EngineForm intended_form() noexcept {
    if (paged_engine<Engine>) return EngineForm::paged;
    if (row_engine<Engine>) return EngineForm::row;
    if (state_engine<Engine>) return EngineForm::state;
    if (has_forward_over_pages<Engine> || has_page_tokens<Engine> || has_capacity_pages<Engine>) {
        return EngineForm::paged;
    }
    if (has_row_bytes<Engine> || has_read_rows<Engine> || has_write_rows<Engine>) {
        return EngineForm::row;
    }
    const bool state = has_save_state<Engine> || has_load_state<Engine> || has_cut<Engine>;
    return state ? EngineForm::state : EngineForm::row;
}

/// Has everything. It stands in for an engine where another form's requirements are asked for, so
/// that "one of three" is a conjunction: g++ explains those, and says nothing about a disjunction.
struct EngineOfEveryForm {
    std::size_t vocab_size() const;
    std::size_t max_context() const;
    std::span<const float> forward(std::span<const Token>, std::size_t);
    std::span<const float> forward(std::span<const Token>, std::size_t, std::span<const PageId>);
    std::size_t page_tokens() const;
    std::size_t capacity_pages() const;
    std::size_t page_bytes() const;
    std::size_t row_bytes() const;
    std::size_t read_rows(std::size_t, std::size_t, std::span<std::byte>);
    void write_rows(std::size_t, std::size_t, std::span<const std::byte>);
    std::span<const std::byte> save_state();
    void load_state(const std::span<const std::byte>&);
    bool cut(std::size_t);
};

template <class Engine, EngineForm form>
using EngineIfMeantAs =
    std::conditional_t<intended_form<Engine>() == form, Engine, EngineOfEveryForm>;

}  // namespace detail

/// What PrefixCachedEngine takes: an engine of one of the three forms.
template <class Engine>
concept cacheable_engine = has_vocab_size<Engine> && has_max_context<Engine> &&
                           paged_engine<detail::EngineIfMeantAs<Engine, EngineForm::paged>> &&
                           row_engine<detail::EngineIfMeantAs<Engine, EngineForm::row>> &&
                           state_engine<detail::EngineIfMeantAs<Engine, EngineForm::state>>;

/// The form that is used: of several that an engine has, paged before row before state.
template <cacheable_engine Engine>
inline constexpr EngineForm engine_form = detail::intended_form<Engine>();

}  // namespace kvstem
