// SPDX-License-Identifier: MIT
// Bodies of RadixCache, third part: leases whose window slides.
#pragma once

#include "../radix_cache.hpp"

namespace kvstem::inline KVSTEM_ABI {

template <page_source Pages, eviction_policy Policy, token_type T>
template <copy_hook Copy>
auto RadixCache<Pages, Policy, T>::acquire_sliding(Tokens prompt, const SlidingWindow& window,
                                                   const Namespace& name, Copy&& copy,
                                                   const RequestHints& hints) -> Acquired<Lease> {
    if (window.window_tokens == 0) {
        detail::fail<InvalidArgument>(
            "a window of 0 positions: a model may slide only if all its layers attend to one "
            "window; "
            "one that mixes full and windowed layers needs every page, and is served by acquire");
    }
    if (window.interval_tokens == 0 || window.ahead_tokens == 0) {
        detail::fail<InvalidArgument>(
            "a slide interval of %zu and steps of %zu positions: each "
            "must be at least 1",
            window.interval_tokens, window.ahead_tokens);
    }
    // Before the sums of the plan, which could wrap.
    if (window.bound_pages(page_tokens()) > pages_.capacity_pages()) {
        return {refuse(Admission::never_fits), Lease{}};
    }
    return admit(prompt, name, window, copy, hints);
}

template <page_source Pages, eviction_policy Policy, token_type T>
std::size_t RadixCache<Pages, Policy, T>::slide(State& state) {
    if (!state.slides()) {
        detail::fail<InvalidArgument>("a lease acquired without a window cannot slide");
    }
    const auto less = [](std::size_t from, std::size_t by) { return from > by ? from - by : 0; };
    const std::size_t reach = state.window.window_tokens - 1;
    std::size_t keep = less(state.written, reach + state.window.retained_tokens);
    if (state.anchor != detail::no_anchor) {
        if (state.written < state.anchor + state.window.window_tokens) {
            keep = std::min(keep, less(state.anchor, reach));
        } else {
            state.anchor = detail::no_anchor;
        }
    }
    if (keep < state.kept_from + state.window.interval_tokens) return 0;
    const std::size_t end = keep / page_tokens();
    const std::size_t begin = std::max(state.slid_pages, state.shared_pages);
    if (end > begin) {
        state.table.reserve(state.table.size() + (end - begin));
        for (std::size_t i = begin; i < end; ++i) {
            state.table.append(std::exchange(state.table[i], no_page));
        }
        state.slid_pages = end;
        state.tail.clear();
    }
    state.kept_from = keep;
    return end > begin ? end - begin : 0;
}

template <page_source Pages, eviction_policy Policy, token_type T>
Admission RadixCache<Pages, Policy, T>::anchor(State& state, std::size_t position) {
    if (!state.slides()) {
        detail::fail<InvalidArgument>("a lease acquired without a window needs no anchor");
    }
    const std::size_t reach = state.window.window_tokens - 1;
    const std::size_t needed = position > reach ? position - reach : 0;
    if (position > state.written || needed < state.kept_from) {
        detail::fail<InvalidArgument>(
            "position %zu cannot be anchored: rows are written up to %zu and held from %zu",
            position, state.written, state.kept_from);
    }
    const std::size_t more = state.window.anchored_bound_pages(page_tokens()) -
                             state.window.bound_pages(page_tokens()) - state.anchor_pages;
    const Admission admission = grow_to(state, (state.table.size() + more) * page_tokens());
    if (admission != Admission::granted) return admission;
    state.anchor_pages += more;
    state.anchor = position;
    return Admission::granted;
}

/// Cutting back a lease that slides gives no page away: they are its reserve.
template <page_source Pages, eviction_policy Policy, token_type T>
void RadixCache<Pages, Policy, T>::cut_back_sliding(State& state, std::size_t position) {
    const std::size_t reach = state.window.window_tokens - 1;
    const std::size_t shared = state.shared_pages * page_tokens();
    const std::size_t needed = position > reach ? position - reach : 0;
    if (position < shared || needed < state.kept_from) {
        detail::fail<InvalidArgument>(
            "a sliding lease cannot go back to position %zu: %zu positions are published, and rows "
            "are held from %zu",
            position, shared, state.kept_from);
    }
    if (state.slid_pages == 0) {
        state.tail.erase(state.tail.begin() + static_cast<std::ptrdiff_t>(position - shared),
                         state.tail.end());
    }
    state.written = position;
    state.adopted = std::min(state.adopted, position);
}

}  // namespace kvstem
