// SPDX-License-Identifier: MIT
// What the plain values of the library promise to the compiler: names, windows, errors, reports.
// Nothing here runs.

#include <cstddef>
#include <exception>
#include <new>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "kvstem/audit.hpp"
#include "kvstem/errors.hpp"
#include "kvstem/ghost.hpp"
#include "kvstem/namespace.hpp"
#include "kvstem/sliding_window.hpp"
#include "kvstem/window.hpp"

namespace {

// --- Namespaces: read during a call, so they are views; absent is not empty.

using kvstem::Namespace;
static_assert(std::is_aggregate_v<Namespace> && std::is_trivially_copyable_v<Namespace>);
static_assert(std::is_nothrow_default_constructible_v<Namespace>);
static_assert(noexcept(std::declval<const Namespace&>().is_default()));
static_assert(std::is_same_v<decltype(Namespace::salt), std::optional<std::string_view>>);
static_assert(!std::is_convertible_v<std::string_view, Namespace>);  // a part has to be named

// --- Windows are arithmetic: all at compile time, and noexcept as long as nobody is asked.

using kvstem::SlidingWindow;
constexpr SlidingWindow window{.window_tokens = 5, .interval_tokens = 2, .ahead_tokens = 2};
static_assert(window.bound_pages(2) == 4);           // 4 + 1 + 1 positions before the last
static_assert(window.anchored_bound_pages(2) == 6);  // 8 + 1 + 1
static_assert(SlidingWindow{.window_tokens = 1}.bound_pages(16) == 1);
static_assert(SlidingWindow{.window_tokens = ~std::size_t{0}, .retained_tokens = ~std::size_t{0}}
                  .bound_pages(1) == ~std::size_t{0});
static_assert(noexcept(window.bound_pages(1)) && noexcept(window.anchored_bound_pages(1)));
static_assert(std::is_aggregate_v<SlidingWindow> && std::is_trivially_copyable_v<SlidingWindow>);

static_assert(kvstem::first_position_in_window(0, 4) == 0);
static_assert(kvstem::first_position_in_window(3, 4) == 0);
static_assert(kvstem::first_position_in_window(4, 4) == 1);
static_assert(kvstem::first_position_in_window(100, 0) == 0);
static_assert(kvstem::longest_window_cut(3, 10, 6, 4) == 6);
static_assert(kvstem::longest_window_cut(3, 10, 5, 4) == 0);
static_assert(kvstem::longest_window_cut(3, 10, 99, 4) == 10);
static_assert(noexcept(kvstem::first_position_in_window(0, 0)));
constexpr auto never_asked = [](std::size_t) { return true; };
static_assert(!noexcept(kvstem::longest_usable_length(1, never_asked, 0, 1)));

// --- Errors: one family, and telling of one never fails.

template <class E>
inline constexpr bool is_a_quiet_error =
    std::is_base_of_v<kvstem::Error, E> && std::is_convertible_v<E*, std::exception*> &&
    std::is_nothrow_copy_constructible_v<E> && std::is_nothrow_copy_assignable_v<E> &&
    std::is_nothrow_constructible_v<E, const char*> && !std::is_convertible_v<const char*, E>;
static_assert(is_a_quiet_error<kvstem::InvalidArgument>);
static_assert(is_a_quiet_error<kvstem::StaleHandle>);
static_assert(is_a_quiet_error<kvstem::BadFormat>);
static_assert(!std::is_base_of_v<kvstem::InvalidArgument, kvstem::StaleHandle>);
static_assert(!std::is_base_of_v<std::bad_alloc, kvstem::Error>);
static_assert(std::has_virtual_destructor_v<kvstem::Error>);

// --- Reports.

static_assert(std::is_nothrow_move_constructible_v<kvstem::AuditReport>);
static_assert(std::is_nothrow_default_constructible_v<kvstem::AuditReport>);
static_assert(noexcept(std::declval<const kvstem::AuditReport&>().ok()));

// --- Ghosts.

static_assert(std::is_trivially_copyable_v<kvstem::GhostRates>);
static_assert(std::is_aggregate_v<kvstem::GhostOptions>);
static_assert(!std::is_convertible_v<kvstem::GhostOptions, kvstem::GhostCache>);
static_assert(noexcept(std::declval<const kvstem::GhostCache&>().rates()));
template <class Ghosts>
concept observes =
    requires(Ghosts& ghosts, const kvstem::Token (&prompt)[3]) { ghosts.observe(prompt); };
static_assert(observes<kvstem::GhostCache> && !observes<const kvstem::GhostCache>);

}  // namespace
