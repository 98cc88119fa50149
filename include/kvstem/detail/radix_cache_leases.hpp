// SPDX-License-Identifier: MIT
// Bodies of RadixCache, second half: what leases do.
#pragma once

#include <algorithm>

#include "../radix_cache.hpp"

namespace kvstem::inline KVSTEM_ABI {

template <page_source Pages, eviction_policy Policy, token_type T>
auto RadixCache<Pages, Policy, T>::take_state() -> State& {
    // Room in both lists for every state there is, so that giving one back never allocates.
    const std::size_t states = leases_.size() + spare_states_.size() + 1;
    if (leases_.capacity() < states) leases_.reserve(states * 2);
    if (spare_states_.capacity() < states) spare_states_.reserve(states * 2);
    if (spare_states_.empty()) spare_states_.push_back(new State);
    State& state = *spare_states_.back();
    spare_states_.pop_back();
    state.cache = this;
    state.place = static_cast<std::uint32_t>(leases_.size());
    leases_.push_back(&state);
    return state;
}

template <page_source Pages, eviction_policy Policy, token_type T>
void RadixCache<Pages, Policy, T>::give_state(State& state) noexcept {
    leases_[state.place] = leases_.back();
    leases_[state.place]->place = state.place;
    leases_.pop_back();
    state.reset();
    if (spare_states_.size() < most_spare_states) {
        spare_states_.push_back(&state);
    } else {
        delete &state;
    }
}

/// Fills `path_` with the nodes from the top of the tree down to `node`; none for no_node.
template <page_source Pages, eviction_policy Policy, token_type T>
void RadixCache<Pages, Policy, T>::note_path_to(NodeId node) {
    path_.clear();
    for (; node != no_node && !tree_.is_root(node); node = tree_.parent(node))
        path_.push_back(node);
    std::reverse(path_.begin(), path_.end());
}

template <page_source Pages, eviction_policy Policy, token_type T>
Admission RadixCache<Pages, Policy, T>::refuse(Admission reason) noexcept {
    ++(reason == Admission::never_fits ? counters_.never_fits : counters_.exhausted);
    return reason;
}

// --- Acquiring -----------------------------------------------------------------------------------

template <page_source Pages, eviction_policy Policy, token_type T>
RadixMatch RadixCache<Pages, Policy, T>::peek(Tokens prompt, const Namespace& name) const noexcept {
    const std::uint32_t root = root_of(name);
    if (root == detail::no_root || prompt.empty()) return {};
    const TreeMatch match = tree_.find(roots_[root].node, prompt);
    const std::size_t cached = static_cast<std::size_t>(match.pages) * page_tokens();
    const std::size_t most = (prompt.size() - 1) / page_tokens() * page_tokens();
    return {cached, cached < most ? cached : most};
}

template <page_source Pages, eviction_policy Policy, token_type T>
auto RadixCache<Pages, Policy, T>::plan(Tokens prompt, const Namespace& name,
                                        std::size_t more_pages) -> Plan {
    Plan plan;
    path_.clear();
    plan.root = root_of(name);
    plan.table_pages = pages_for(prompt.size()) + more_pages;
    if (plan.root != detail::no_root && !prompt.empty()) {
        const std::size_t most = (prompt.size() - 1) / page_tokens() * page_tokens();
        plan.match = tree_.find(roots_[plan.root].node, prompt.first(most),
                                [this](NodeId node) { path_.push_back(node); });
    }
    plan.fresh_pages = plan.table_pages - static_cast<std::size_t>(plan.match.pages);
    return plan;
}

/// The pages of a match that are evictable now and will not be once it is pinned.
template <page_source Pages, eviction_policy Policy, token_type T>
auto RadixCache<Pages, Policy, T>::evictable_on_path(const TreeMatch& match) const noexcept
    -> Evictable {
    Evictable kept;
    if (match.pages == 0) return kept;
    std::size_t pages = match.node_pages;
    for (NodeId node = match.node; !tree_.is_root(node) && !is_pinned(node);) {
        kept.pages += pages;
        kept.freeable += freeable_among(tree_.values(node).first(pages));
        node = tree_.parent(node);
        pages = tree_.pages(node);
    }
    return kept;
}

template <page_source Pages, eviction_policy Policy, token_type T>
template <copy_hook Copy>
auto RadixCache<Pages, Policy, T>::acquire(Tokens prompt, const Namespace& name, Copy&& copy,
                                           const RequestHints& hints) -> Acquired<Lease> {
    return admit(prompt, name, SlidingWindow{}, copy, hints);
}

template <page_source Pages, eviction_policy Policy, token_type T>
template <class Copy>
auto RadixCache<Pages, Policy, T>::admit(Tokens prompt, const Namespace& name,
                                         const SlidingWindow& window, Copy&& copy,
                                         const RequestHints& hints) -> Acquired<Lease> {
    const bool slides = window.window_tokens != 0;
    const Plan plan = this->plan(prompt, name, slides ? window.bound_pages(page_tokens()) : 0);
    if (plan.table_pages > pages_.capacity_pages()) return {refuse(Admission::never_fits), Lease{}};
    const auto matched = static_cast<std::size_t>(plan.match.pages);
    const bool short_of_pages = plan.fresh_pages > pages_.free_pages();
    if (short_of_pages && !can_free(plan.fresh_pages, evictable_on_path(plan.match))) {
        return {refuse(Admission::exhausted), Lease{}};
    }
    // What can fail without a trace comes first; then the match is pinned, and only then anything
    // is evicted (M3).
    State& state = take_state();
    NodeId node = matched != 0 ? plan.match.node : no_node;
    detail::on_failure(
        [&] {
            state.table.reserve(plan.table_pages);
            state.root = root_for(name);
            if (matched != 0 && plan.match.node_pages < tree_.pages(node)) {
                node = cut(node, plan.match.node_pages);
            }
            tell_request(state, node, matched, prompt, name, hints);
        },
        [&]() noexcept {
            if (node != no_node && node != plan.match.node) uncut(node, plan.match.node);
            if (state.root != detail::no_root) drop_root_if_unused(state.root);
            give_state(state);
        });
    state.table.resize(matched);
    state.window = window;
    state.prompt_pages = prompt.size() / page_tokens();
    state.shared_pages = matched;
    state.written = matched * page_tokens();
    state.node = node;
    ++roots_[state.root].leases;
    if (node != no_node) path_.back() = node;  // the part above the cut, if there was one
    pin_and_copy(path_, state.table.view());
    state.path.swap(path_);
    Lease lease(state);  // from here on it gives everything back if something fails
    const Admission admission = take_pages(state.table.unset(plan.fresh_pages));
    if (admission != Admission::granted) return {refuse(admission), Lease{}};
    state.table.resize(plan.table_pages);
    if constexpr (!std::is_same_v<std::remove_cvref_t<Copy>, NoCopy>) {
        adopt_partial_page(state, prompt, copy);
    }
    state.adopted = state.written;
    ++(state.adopted != 0 ? counters_.hits : counters_.misses);
    counters_.queried_tokens += prompt.size();
    counters_.hit_tokens += state.adopted;
    counters_.missed_tokens += prompt.size() - state.adopted;
    return {Admission::granted, std::move(lease)};
}

template <page_source Pages, eviction_policy Policy, token_type T>
void RadixCache<Pages, Policy, T>::tell_request([[maybe_unused]] State& state,
                                                [[maybe_unused]] NodeId node,
                                                [[maybe_unused]] std::size_t matched,
                                                [[maybe_unused]] Tokens prompt,
                                                [[maybe_unused]] const Namespace& name,
                                                [[maybe_unused]] const RequestHints& hints) {
    const auto info = [&] {
        const std::size_t most = prompt.empty() ? 0 : (prompt.size() - 1) / page_tokens();
        return RequestInfo<T>{prompt.first(most * page_tokens()),
                              page_tokens(),
                              matched,
                              node,
                              roots_[state.root].node,
                              name,
                              hints};
    };
    [[maybe_unused]] Nodes nodes{tree_};
    if constexpr (requires { policy_.request(nodes, info(), state.policy_data); }) {
        policy_.request(nodes, info(), state.policy_data);
    } else if constexpr (requires { policy_.request(nodes, info()); }) {
        policy_.request(nodes, info());
    }
}

/// Fills `out` with free pages, evicting for them. Requires: `can_free(out.size(), …)`.
///
/// What is evicted from a pool that is not the engine's own does not go back there to be taken out
/// at once: the tree's hold becomes the lease's. A request that takes what an old one leaves then
/// costs the pool nothing, however scattered the pages are.
template <page_source Pages, eviction_policy Policy, token_type T>
Admission RadixCache<Pages, Policy, T>::take_pages(std::span<PageId> out) {
    const std::size_t free = pages_.free_pages();
    if (trusts_pages && overlapping_pages_ == 0 && free < out.size()) {
        const std::size_t missing = out.size() - free;
        const std::size_t evicted = evict_into(out.first(missing));
        if (evicted < missing) {
            pages_.release(out.first(evicted));
            return Admission::exhausted;
        }
        out = out.subspan(missing);
        KVSTEM_ASSERT(out.size() == pages_.free_pages());  // so nothing below can fail
    }
    if (out.empty()) return Admission::granted;
    make_room(out.size());
    if (!pages_.acquire(out)) return Admission::exhausted;
    // PagePool hands out free pages of its own and nothing else; of others that has to be seen.
    if constexpr (!trusts_pages) check_pages(out);
    return Admission::granted;
}

template <page_source Pages, eviction_policy Policy, token_type T>
void RadixCache<Pages, Policy, T>::check_pages(std::span<const PageId> pages) const {
    std::uint32_t largest = 0;
    for (const PageId page : pages) largest = std::max(largest, index_of(page));
    if (largest >= in_tree_.capacity() || in_tree_.contains_any(pages)) {
        detail::fail<InvalidArgument>(
            "the page source handed out a page that is outside its capacity of %zu or in the tree; "
            "the largest id was %u",
            in_tree_.capacity(), largest);
    }
}

/// M8: the first rows of the next page, where some cached page agrees with them. Looked for after
/// the last eviction, so that the page copied from is there.
template <page_source Pages, eviction_policy Policy, token_type T>
template <class Copy>
void RadixCache<Pages, Policy, T>::adopt_partial_page(State& state, Tokens prompt, Copy&& copy) {
    if (prompt.empty()) return;
    const NodeId end = state.node != no_node ? state.node : roots_[state.root].node;
    const Tokens rest = prompt.subspan(state.written, prompt.size() - 1 - state.written);
    const auto partial = tree_.find_partial({end, tree_.pages(end), 0}, rest);
    if (partial.tokens == 0) return;
    state.tail.assign(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(partial.tokens));
    copy(tree_.values(partial.node)[partial.page], state.table[state.shared_pages], partial.tokens);
    state.written += partial.tokens;
    counters_.partial_tokens += partial.tokens;
}

// --- Writing and growing -------------------------------------------------------------------------

template <page_source Pages, eviction_policy Policy, token_type T>
void RadixCache<Pages, Policy, T>::check_room(const State& state, std::size_t tokens) const {
    const std::size_t room = state.table.size() * page_tokens() - state.written;
    if (tokens > room) {
        detail::fail<InvalidArgument>("%zu rows written at position %zu, but there is room for %zu",
                                      tokens, state.written, room);
    }
}

template <page_source Pages, eviction_policy Policy, token_type T>
void RadixCache<Pages, Policy, T>::wrote(State& state, Tokens tokens) {
    check_room(state, tokens.size());
    // Once a window has slid nothing is published any more, and an endless answer is not
    // remembered.
    if (state.slid_pages == 0) state.tail.insert(state.tail.end(), tokens.begin(), tokens.end());
    state.written += tokens.size();
}

template <page_source Pages, eviction_policy Policy, token_type T>
Admission RadixCache<Pages, Policy, T>::grow_to(State& state, std::size_t positions) {
    const std::size_t held = state.table.size();
    const std::size_t wanted = pages_for(positions);
    if (wanted <= held) return Admission::granted;
    // Where a window has slid the table has holes, which are no pages.
    const std::size_t holes =
        state.slid_pages > state.shared_pages ? state.slid_pages - state.shared_pages : 0;
    if (wanted - holes > pages_.capacity_pages()) return refuse(Admission::never_fits);
    if (!can_free(wanted - held, {})) return refuse(Admission::exhausted);
    state.table.reserve(wanted);
    const Admission admission = take_pages(state.table.unset(wanted - held));
    if (admission != Admission::granted) return refuse(admission);
    state.table.resize(wanted);
    return Admission::granted;
}

// --- Publishing ----------------------------------------------------------------------------------

/// Whether what a lease publishes would be found by anyone.
template <page_source Pages, eviction_policy Policy, token_type T>
bool RadixCache<Pages, Policy, T>::can_publish(const State& state) const noexcept {
    return !roots_[state.root].detached && state.slid_pages == 0;
}

/// Of `tokens` tokens that follow the shared pages, those in whole pages that may be published. Of
/// a request whose window slides only the prompt: its later pages are what keeps it within its
/// bound.
template <page_source Pages, eviction_policy Policy, token_type T>
std::size_t RadixCache<Pages, Policy, T>::publishable(const State& state,
                                                      std::size_t tokens) const noexcept {
    std::size_t pages = tokens / page_tokens();
    if (state.slides()) {
        const std::size_t most =
            state.prompt_pages - std::min(state.prompt_pages, state.shared_pages);
        pages = std::min(pages, most);
    }
    return pages * page_tokens();
}

template <page_source Pages, eviction_policy Policy, token_type T>
std::size_t RadixCache<Pages, Policy, T>::publish(State& state) {
    const std::size_t whole = publishable(state, state.tail.size());
    if (whole == 0 || !can_publish(state)) return 0;
    const std::size_t published = publish_whole(state, Tokens(state.tail).first(whole));
    state.tail.erase(state.tail.begin(), state.tail.begin() + static_cast<std::ptrdiff_t>(whole));
    return published;
}

template <page_source Pages, eviction_policy Policy, token_type T>
std::size_t RadixCache<Pages, Policy, T>::publish(State& state, Tokens tokens) {
    if (!state.tail.empty() || !can_publish(state)) {
        const std::size_t before = state.tail.size();
        wrote(state, tokens);
        std::size_t published = 0;
        detail::on_failure([&] { published = publish(state); },
                           [&]() noexcept {
                               state.tail.erase(
                                   state.tail.begin() + static_cast<std::ptrdiff_t>(before),
                                   state.tail.end());
                               state.written -= tokens.size();
                           });
        return published;
    }
    check_room(state, tokens.size());
    const std::size_t whole = publishable(state, tokens.size());
    state.tail.reserve(tokens.size() - whole);
    const std::size_t published = whole == 0 ? 0 : publish_whole(state, tokens.first(whole));
    state.tail.assign(tokens.begin() + static_cast<std::ptrdiff_t>(whole), tokens.end());
    state.written += tokens.size();
    return published;
}

/// Publishes whole pages: `tokens` are those of the positions that follow the lease's shared pages.
template <page_source Pages, eviction_policy Policy, token_type T>
std::size_t RadixCache<Pages, Policy, T>::publish_whole(State& state, Tokens tokens) {
    const Root& root = roots_[state.root];
    const std::size_t whole = tokens.size() / page_tokens();
    // The search goes on from the lease's own node: what was adopted is not compared again.
    const NodeId from = state.node != no_node ? state.node : root.node;
    const TreeMatch match = tree_.find(from, tokens);
    const auto known = static_cast<std::size_t>(match.pages);
    const std::span<const PageId> fresh =
        std::as_const(state.table).view().subspan(state.shared_pages + known, whole - known);
    // With a pool of our own a page that nobody shares cannot be in the tree already.
    const bool marks = !trusts_pages || state.shares_pages;
    if (marks && !in_tree_.insert_new(fresh)) {
        detail::fail<InvalidArgument>(
            "one of %zu pages to publish, the first of which is %u, "
            "stands in the tree under other tokens, or in the block table twice",
            fresh.size(), index_of(fresh[0]));
    }
    NodeId end = match.node;
    NodeId leaf = no_node;
    const bool cuts = match.node_pages < tree_.pages(match.node);
    detail::on_failure(
        [&] {
            if constexpr (requires { policy_.reserve(std::size_t{}); }) {
                policy_.reserve(fresh.size());
            }
            detail::reserve_more(state.duplicates, known);
            if (cuts) end = cut(match.node, match.node_pages);
            if (!fresh.empty()) {
                leaf = tree_.insert(end, tokens.subspan(known * page_tokens()), fresh);
            }
        },
        [&]() noexcept {
            if (end != match.node) uncut(end, match.node);
            if (marks) in_tree_.erase(fresh);
        });
    // The lease's pin moves down to the new end; what was pinned stays pinned throughout.
    pin(end);
    if (leaf != no_node) {
        tree_.data(leaf).pins = 1;  // the pin of `end` just made is the one this child gives it
        pinned_pages_ += fresh.size();
        enter_tree(fresh, state.shares_pages);
        [[maybe_unused]] Nodes nodes{tree_};
        if constexpr (requires { policy_.inserted(nodes, leaf, state.policy_data); }) {
            policy_.inserted(nodes, leaf, state.policy_data);
        } else if constexpr (requires { policy_.inserted(nodes, leaf); }) {
            policy_.inserted(nodes, leaf);
        }
    }
    if (state.node != no_node) unpin(state.node, false, {});
    note_duplicates(state, end, known);
    state.node = leaf != no_node ? leaf : end;
    state.shared_pages += whole;
    const std::size_t published = fresh.size();
    tree_.tidy();
    return published;
}

/// The `known` pages from the lease's shared ones on, down to the node `end`, stood in the tree
/// already. Where the tree's page is the lease's (published by a fork) the lease's own hold ends;
/// otherwise its page is a duplicate, which stays in the table until the lease switches.
template <page_source Pages, eviction_policy Policy, token_type T>
void RadixCache<Pages, Policy, T>::note_duplicates(State& state, NodeId end,
                                                   std::size_t known) noexcept {
    const std::size_t before = state.duplicates.size();
    std::size_t index = state.shared_pages + known;
    for (NodeId node = end; index > state.shared_pages; node = tree_.parent(node)) {
        const std::span<const PageId> values = tree_.values(node);
        for (std::size_t i = values.size(); i-- > 0;) {
            const PageId own = state.table[--index];
            if (own == values[i]) {
                release_private({&own, 1}, true);
            } else {
                state.duplicates.push_back(static_cast<std::uint32_t>(index));
                ++counters_.duplicate_pages;
            }
        }
    }
    std::reverse(state.duplicates.begin() + static_cast<std::ptrdiff_t>(before),
                 state.duplicates.end());
}

template <page_source Pages, eviction_policy Policy, token_type T>
std::size_t RadixCache<Pages, Policy, T>::switch_to_tree(State& state) noexcept {
    const std::size_t switched = state.duplicates.size();
    std::size_t begin = state.shared_pages;
    for (NodeId node = state.node; !state.duplicates.empty(); node = tree_.parent(node)) {
        const std::span<const PageId> values = tree_.values(node);
        begin -= values.size();
        // Their indices ascend: the last ones belong to the deepest nodes.
        while (!state.duplicates.empty() && state.duplicates.back() >= begin) {
            const std::uint32_t index = state.duplicates.back();
            state.duplicates.pop_back();
            const PageId own = std::exchange(state.table[index], values[index - begin]);
            release_private({&own, 1}, state.shares_pages);
        }
    }
    return switched;
}

// --- Forking, cutting back, releasing ------------------------------------------------------------

template <page_source Pages, eviction_policy Policy, token_type T>
template <class Copy>
auto RadixCache<Pages, Policy, T>::fork(State& state, Copy&& copy) -> Acquired<Lease> {
    const std::size_t whole = state.written / page_tokens();
    const std::size_t rows = state.written % page_tokens();
    if (state.slides()) {
        detail::fail<InvalidArgument>("a lease with a sliding window of %zu positions cannot fork",
                                      state.window.window_tokens);
    }
    if (rows != 0 && !can_free(1, {})) return {refuse(Admission::exhausted), Lease{}};
    State& child = take_state();
    std::size_t retained = state.shared_pages;
    detail::on_failure(
        [&] {
            child.table.reserve(whole + 1);
            note_path_to(state.node);
            child.tail.assign(state.tail.begin(), state.tail.end());
            child.policy_data = state.policy_data;
            for (; retained < whole; ++retained) pages_.retain(state.table[retained]);
        },
        [&]() noexcept {
            while (retained > state.shared_pages) {
                const PageId page = state.table[--retained];
                pages_.release({&page, 1});
            }
            give_state(child);
        });
    child.root = state.root;
    child.table.resize(whole);
    child.shared_pages = state.shared_pages;
    child.shares_pages = state.shares_pages = state.shares_pages || whole > state.shared_pages;
    std::copy(state.table.data() + state.shared_pages, state.table.data() + whole,
              child.table.data() + state.shared_pages);
    child.node = state.node;
    ++roots_[state.root].leases;
    pin_and_copy(path_, child.table.view().first(state.shared_pages));
    child.path.swap(path_);
    Lease lease(child);  // from here on it gives everything back if something fails
    if (rows != 0) {
        const Admission admission = take_pages(child.table.unset(1));
        if (admission != Admission::granted) return {refuse(admission), Lease{}};
        child.table.resize(whole + 1);
        copy(state.table[whole], child.table[whole], rows);
    }
    child.adopted = child.written = state.written;
    return {Admission::granted, std::move(lease)};
}

/// Whether writing into the page at an index of the table could be seen by another owner.
template <page_source Pages, eviction_policy Policy, token_type T>
bool RadixCache<Pages, Policy, T>::needs_copy(const State& state, std::size_t page) const noexcept {
    if (!state.holds_privately(page)) return true;
    return state.shares_pages && pages_.refs(state.table[page]) > 1;
}

template <page_source Pages, eviction_policy Policy, token_type T>
template <class Copy>
Admission RadixCache<Pages, Policy, T>::cut_back(State& state, std::size_t position, Copy&& copy) {
    if (position > state.written) {
        detail::fail<InvalidArgument>("cut back to position %zu, but only %zu are written",
                                      position, state.written);
    }
    if (state.slides()) {
        cut_back_sliding(state, position);
        return Admission::granted;
    }
    const std::size_t whole = position / page_tokens();
    const std::size_t rows = position % page_tokens();
    const bool copies = rows != 0 && needs_copy(state, whole);
    if (copies && !can_free(1, {})) return refuse(Admission::exhausted);

    const bool in_shared_part = whole < state.shared_pages;
    const CutPoint at = cut_point(state, whole);
    const NodeId inside = at.inside;
    const std::size_t begin = at.begin;
    NodeId end = inside;
    PageId fresh = no_page;
    std::vector<T> tail;
    detail::on_failure(
        [&] {
            if (in_shared_part) {
                const Tokens page = tree_.tokens(inside).subspan((whole - begin) * page_tokens());
                tail.assign(page.begin(), page.begin() + static_cast<std::ptrdiff_t>(rows));
                if (begin < whole) end = cut(inside, static_cast<std::uint32_t>(whole - begin));
            }
            if (!copies) return;
            PageId taken = no_page;
            if (take_pages({&taken, 1}) != Admission::granted) return;
            fresh = taken;
            copy(state.table[whole], fresh, rows);
        },
        [&]() noexcept {
            if (fresh != no_page) pages_.release({&fresh, 1});
            if (end != inside) uncut(end, inside);
        });
    if (copies && fresh == no_page) {
        if (end != inside) uncut(end, inside);
        return refuse(Admission::exhausted);
    }
    give_up_pages(state, copies ? whole : whole + (rows != 0 ? 1 : 0));
    std::erase_if(state.duplicates, [whole](std::uint32_t index) { return index >= whole; });
    state.table.resize(whole + (rows != 0 ? 1 : 0));
    if (copies) state.table[whole] = fresh;
    if (in_shared_part) {
        share_less(state, whole, begin == whole ? tree_.parent(inside) : end);
        state.tail.swap(tail);
    } else {
        state.tail.erase(state.tail.begin() + static_cast<std::ptrdiff_t>(
                                                  position - state.shared_pages * page_tokens()),
                         state.tail.end());
    }
    state.written = position;
    state.adopted = std::min(state.adopted, position);
    return Admission::granted;
}

/// Moves a lease's pin up to `end`, the node (or root) with which its first `pages` pages end.
template <page_source Pages, eviction_policy Policy, token_type T>
void RadixCache<Pages, Policy, T>::share_less(State& state, std::size_t pages,
                                              NodeId end) noexcept {
    if (!tree_.is_root(end)) pin(end);
    unpin(state.node, roots_[state.root].detached, state.path);
    const NodeId above = tree_.is_root(end) ? end : tree_.parent(end);  // if `end` is new
    while (!state.path.empty() && state.path.back() != end && state.path.back() != above) {
        state.path.pop_back();
    }
    state.node = pages == 0 ? no_node : end;
    state.shared_pages = pages;
}

/// The node of a lease's shared part that holds page `page`, and the page it begins with; if
/// the page is behind the shared part, the lease's own node.
template <page_source Pages, eviction_policy Policy, token_type T>
auto RadixCache<Pages, Policy, T>::cut_point(const State& state, std::size_t page) const noexcept
    -> CutPoint {
    CutPoint at{state.node, state.shared_pages};
    if (page >= state.shared_pages) return at;
    while ((at.begin -= tree_.pages(at.inside)) > page) at.inside = tree_.parent(at.inside);
    return at;
}

/// Gives back the lease's own holds on the pages from index `keep` on. The table is left as it is.
template <page_source Pages, eviction_policy Policy, token_type T>
void RadixCache<Pages, Policy, T>::give_up_pages(State& state, std::size_t keep) noexcept {
    const std::span<const PageId> table = std::as_const(state.table).view();
    for (const std::uint32_t index : state.duplicates) {
        if (index >= keep) release_private(table.subspan(index, 1), state.shares_pages);
    }
    const std::span<const PageId> own = table.subspan(std::max(state.shared_pages, keep));
    if (state.slid_pages == 0) return release_private(own, state.shares_pages);
    for (const PageId& page : own) {
        if (page != no_page) release_private({&page, 1}, state.shares_pages);
    }
}

template <page_source Pages, eviction_policy Policy, token_type T>
void RadixCache<Pages, Policy, T>::release(State& state) noexcept {
    const std::uint32_t root = state.root;
    const bool detached = roots_[root].detached;
    give_up_pages(state, 0);
    if (state.node != no_node) unpin(state.node, detached, state.path);
    --roots_[root].leases;
    drop_root_if_unused(root);
    give_state(state);
    if (detached) tree_.tidy();
}

}  // namespace kvstem
