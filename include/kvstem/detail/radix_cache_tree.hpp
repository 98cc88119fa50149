// SPDX-License-Identifier: MIT
// Bodies of RadixCache, first half: trees of namespaces, nodes, pages, eviction, audit.
#pragma once

#include "../radix_cache.hpp"

namespace kvstem::inline KVSTEM_ABI {

template <page_source Pages, eviction_policy Policy, token_type T>
RadixCache<Pages, Policy, T>::RadixCache(RadixCacheOptions options, Pages pages, Policy policy)
    : pages_(std::move(pages)),
      policy_(std::move(policy)),
      tree_(options.page_tokens),
      in_tree_(pages_.capacity_pages()) {
    constexpr std::size_t most_positions = ~std::size_t{0} >> 1;
    if (in_tree_.capacity() > most_positions / page_tokens()) {
        detail::fail<InvalidArgument>("%zu pages of %zu tokens are more than 2^63 positions",
                                      in_tree_.capacity(), page_tokens());
    }
    if constexpr (requires { policy_.attach(std::size_t{}); }) {
        policy_.attach(std::size_t{pages_.capacity_pages()});
    }
}

template <page_source Pages, eviction_policy Policy, token_type T>
RadixCache<Pages, Policy, T>::~RadixCache() {
    // Leases that outlive the cache become empty. Their pages go back like all others, so that an
    // engine's allocator that outlives the cache gets everything it gave.
    while (!leases_.empty()) {
        State& state = *leases_.back();
        static_cast<Lease*>(state.owner)->state_ = nullptr;
        release(state);
    }
    clear();
    for (State* state : spare_states_) delete state;
}

// --- Trees of namespaces -------------------------------------------------------------------------

template <page_source Pages, eviction_policy Policy, token_type T>
std::uint32_t RadixCache<Pages, Policy, T>::root_of(const Namespace& name) const noexcept {
    if (name.is_default()) return default_root_;
    const std::uint32_t filed = namespaces_.find(name);
    return filed == 0 ? detail::no_root : filed - 1;
}

/// The record of a namespace's tree, made if there is none.
template <page_source Pages, eviction_policy Policy, token_type T>
std::uint32_t RadixCache<Pages, Policy, T>::root_for(const Namespace& name) {
    const std::uint32_t known = root_of(name);
    if (known != detail::no_root) return known;
    if (free_roots_.empty()) {
        // Room for every record there is, so that dropping a root never allocates.
        detail::reserve_more(free_roots_, roots_.size() + 1);
        roots_.push_back({});
        free_roots_.push_back(static_cast<std::uint32_t>(roots_.size() - 1));
    }
    const std::uint32_t root = free_roots_.back();
    const NodeId node = tree_.add_root();
    std::uint32_t entry = 0;
    if (name.is_default()) {
        default_root_ = root;
    } else {
        detail::on_failure([&] { entry = namespaces_.add(name, root + 1); },
                           [&]() noexcept { tree_.remove_root(node); });
    }
    free_roots_.pop_back();
    roots_[root] = {node, entry, 0, false};
    tree_.data(node).pins = root;
    return root;
}

template <page_source Pages, eviction_policy Policy, token_type T>
void RadixCache<Pages, Policy, T>::drop_root_if_unused(std::uint32_t root) noexcept {
    Root& record = roots_[root];
    if (record.leases != 0 || tree_.child_count(record.node) != 0) return;
    if (root == default_root_) {
        default_root_ = detail::no_root;
    } else if (!record.detached) {
        namespaces_.remove(record.entry);
    }
    tree_.remove_root(record.node);
    record = {};
    free_roots_.push_back(root);
}

/// Takes a tree out of reach: what nobody reads is freed, the rest stays for its leases. Returns
/// the number of pages that left the tree.
template <page_source Pages, eviction_policy Policy, token_type T>
std::size_t RadixCache<Pages, Policy, T>::detach(std::uint32_t root) noexcept {
    Root& record = roots_[root];
    const std::size_t before = cached_pages();
    ++record.leases;  // so that the record outlives the removal of its nodes
    remove_unpinned_below(record.node);
    detach_pinned_below(record.node);
    if (root == default_root_) {
        default_root_ = detail::no_root;
    } else {
        namespaces_.remove(record.entry);
    }
    record.detached = true;
    --record.leases;
    drop_root_if_unused(root);
    tree_.tidy();
    const std::size_t dropped = before - cached_pages();
    counters_.dropped_pages += dropped;
    return dropped;
}

/// Removes every unpinned node below a root, children before parents. Nothing below an unpinned
/// node is pinned, so each of them is a leaf by the time it is reached.
template <page_source Pages, eviction_policy Policy, token_type T>
std::size_t RadixCache<Pages, Policy, T>::remove_unpinned_below(NodeId root) noexcept {
    const auto deepest_first = [this](NodeId node) noexcept {
        while (tree_.first_child(node) != no_node) node = tree_.first_child(node);
        return node;
    };
    std::size_t removed = 0;
    NodeId node = deepest_first(root);
    while (node != root) {
        const NodeId sibling = tree_.next_sibling(node);
        const NodeId next = sibling != no_node ? deepest_first(sibling) : tree_.parent(node);
        if (!is_pinned(node)) {
            ++removed;
            remove_node(node);
        }
        node = next;
    }
    return removed;
}

template <page_source Pages, eviction_policy Policy, token_type T>
void RadixCache<Pages, Policy, T>::detach_pinned_below(NodeId root) noexcept {
    for (NodeId node = tree_.next_in(root, root); node != no_node;
         node = tree_.next_in(root, node)) {
        for (const PageId page : tree_.values(node)) {
            if (overlapping_pages_ != 0 && pages_.refs(page) > 1) --overlapping_pages_;
        }
        if constexpr (requires(Nodes& nodes) { policy_.detached(nodes, node); }) {
            Nodes nodes{tree_};
            policy_.detached(nodes, node);
        }
        in_tree_.erase(tree_.values(node));
        pinned_pages_ -= tree_.pages(node);
        detached_pages_ += tree_.pages(node);
    }
}

template <page_source Pages, eviction_policy Policy, token_type T>
void RadixCache<Pages, Policy, T>::clear() noexcept {
    for (std::uint32_t root = 0; root < roots_.size(); ++root) {
        if (roots_[root].node != no_node && !roots_[root].detached) detach(root);
    }
}

template <page_source Pages, eviction_policy Policy, token_type T>
std::size_t RadixCache<Pages, Policy, T>::drop(const Namespace& name) noexcept {
    const std::uint32_t root = root_of(name);
    return root == detail::no_root ? 0 : detach(root);
}

// --- Nodes ---------------------------------------------------------------------------------------

/// Splits a node. The upper part is as pinned as its one child makes it: once or not at all.
template <page_source Pages, eviction_policy Policy, token_type T>
NodeId RadixCache<Pages, Policy, T>::cut(NodeId node, std::uint32_t keep) {
    const NodeId upper = tree_.split(node, keep);
    Nodes nodes{tree_};
    if (!is_pinned(node)) {
        policy_.split(nodes, upper, node);
        return upper;
    }
    tree_.data(upper).pins = 1;
    if constexpr (requires { policy_.split_pinned(nodes, upper, node); }) {
        policy_.split_pinned(nodes, upper, node);
    }
    return upper;
}

/// Undoes a cut, right after it.
template <page_source Pages, eviction_policy Policy, token_type T>
void RadixCache<Pages, Policy, T>::uncut(NodeId upper, NodeId lower) noexcept {
    Nodes nodes{tree_};
    if constexpr (requires { policy_.joined(nodes, upper, lower); }) {
        policy_.joined(nodes, upper, lower);
    } else if (!is_pinned(upper)) {
        policy_.removed(nodes, upper);
    }
    tree_.join_with_parent(lower);
}

/// One more pin on a node; true if it was the first, so that the parent gets one too.
template <page_source Pages, eviction_policy Policy, token_type T>
bool RadixCache<Pages, Policy, T>::pin_node(Nodes& nodes, NodeId node) noexcept {
    if (tree_.data(node).pins++ != 0) return false;
    pinned_pages_ += tree_.pages(node);
    if constexpr (pins_in_turn) {
        policy_.pinned_in_turn(nodes, node);
    } else {
        policy_.pinned(nodes, node);
    }
    tree_.move_to_front(node);  // the next request most likely comes this way again
    return true;
}

/// Pins a path: up to the first node that was pinned already.
template <page_source Pages, eviction_policy Policy, token_type T>
void RadixCache<Pages, Policy, T>::pin(NodeId node) noexcept {
    Nodes nodes{tree_};
    while (!tree_.is_root(node) && pin_node(nodes, node)) node = tree_.parent(node);
    if constexpr (pins_in_turn) policy_.pinned_all(nodes);
}

/// Takes one pin off a path. Nodes that lose their last one become evictable, the deepest first,
/// which is the order LeastRecentlyUsed relies on; in a detached tree they go at once. `path` are
/// nodes that the walk may come by, from the top down, so that it can ask for them ahead.
template <page_source Pages, eviction_policy Policy, token_type T>
void RadixCache<Pages, Policy, T>::unpin(NodeId node, bool detached,
                                         std::span<const NodeId> path) noexcept {
    Nodes nodes{tree_};
    std::size_t to_come = path.size();
    while (!tree_.is_root(node)) {
        if (to_come != 0 && path[to_come - 1] == node) {
            --to_come;
            if (to_come >= nodes_ahead) tree_.prefetch(path[to_come - nodes_ahead]);
        }
        if (--tree_.data(node).pins != 0) return;
        const NodeId above = tree_.parent(node);
        if (detached) {
            detached_pages_ -= tree_.pages(node);
            pages_.release(tree_.values(node));
            tree_.remove_leaf(node);
        } else {
            pinned_pages_ -= tree_.pages(node);
            policy_.unpinned(nodes, node);
        }
        node = above;
    }
}

/// Removes an unpinned leaf with all its pages.
template <page_source Pages, eviction_policy Policy, token_type T>
void RadixCache<Pages, Policy, T>::remove_node(NodeId node) noexcept {
    Nodes nodes{tree_};
    policy_.removed(nodes, node);
    leave_tree(tree_.values(node));
    const NodeId above = tree_.parent(node);
    tree_.remove_leaf(node);
    if (tree_.is_root(above)) {
        drop_root_if_unused(tree_.data(above).pins);
    } else if constexpr (requires { policy_.became_leaf(nodes, above); }) {
        if (tree_.child_count(above) == 0 && !is_pinned(above)) policy_.became_leaf(nodes, above);
    }
}

/// Pins a path, given from the top down, and copies its pages to `out`, which has exactly that
/// size. One walk does both: on a long path, waiting for its nodes is most of the cost. That the
/// ids are known lets the walk ask for nodes ahead, which following parents could not.
template <page_source Pages, eviction_policy Policy, token_type T>
void RadixCache<Pages, Policy, T>::pin_and_copy(std::span<const NodeId> path,
                                                std::span<PageId> out) noexcept {
    Nodes nodes{tree_};
    std::size_t end = out.size();
    const PageId* first = nullptr;  // the slices of one run, side by side, are one copy
    const PageId* last = nullptr;
    const auto copy_run = [&]() noexcept {
        if (first == nullptr) return;
        const auto pages = static_cast<std::size_t>(last - first);
        end -= pages;
        std::memcpy(out.data() + end, first, pages * sizeof(PageId));
    };
    bool pinning = true;  // until a node that was pinned already: what is above it is, too
    for (std::size_t i = path.size(); i-- > 0;) {
        if (i >= nodes_ahead) tree_.prefetch(path[i - nodes_ahead]);
        pinning = pinning && pin_node(nodes, path[i]);
        const std::span<const PageId> values = tree_.values(path[i]);
        if (values.data() + values.size() != first) {
            copy_run();
            last = values.data() + values.size();
        }
        first = values.data();
    }
    copy_run();
    if constexpr (pins_in_turn) policy_.pinned_all(nodes);
}

// --- Pages: the one place where they enter and leave the tree ------------------------------------

template <page_source Pages, eviction_policy Policy, token_type T>
void RadixCache<Pages, Policy, T>::enter_tree(std::span<const PageId> pages,
                                              bool may_be_shared) noexcept {
    // The hold of the lease that publishes becomes the tree's; a fork's hold on the same page
    // stays, and `publish` has marked such a page.
    if (may_be_shared) {
        for (const PageId page : pages) overlapping_pages_ += pages_.refs(page) > 1 ? 1 : 0;
    }
    counters_.published_pages += pages.size();
}

template <page_source Pages, eviction_policy Policy, token_type T>
void RadixCache<Pages, Policy, T>::leave_tree(std::span<const PageId> pages) noexcept {
    if (overlapping_pages_ != 0) {
        for (const PageId page : pages) overlapping_pages_ -= pages_.refs(page) > 1 ? 1 : 0;
    }
    in_tree_.erase(pages);
    if (waiting_.empty()) return pages_.release(pages);
    KVSTEM_ASSERT(pages.size() <= waiting_.size());
    std::memcpy(waiting_.data(), pages.data(), pages.size_bytes());
    waiting_ = waiting_.subspan(pages.size());
}

/// Gives back a lease's own holds.
template <page_source Pages, eviction_policy Policy, token_type T>
void RadixCache<Pages, Policy, T>::release_private(std::span<const PageId> pages,
                                                   bool may_be_shared) noexcept {
    if (may_be_shared) {
        for (const PageId page : pages) {
            if (in_tree_.contains(page) && pages_.refs(page) == 2) --overlapping_pages_;
        }
    }
    pages_.release(pages);
}

/// Whether evicting could make `wanted` pages free, if the evictable pages of `kept` are to stay.
template <page_source Pages, eviction_policy Policy, token_type T>
bool RadixCache<Pages, Policy, T>::can_free(std::size_t wanted, Evictable kept) const noexcept {
    const std::size_t free = pages_.free_pages();
    if (wanted <= free) return true;
    const std::size_t missing = wanted - free;
    const std::size_t evictable = evictable_pages() - kept.pages;
    if (missing > evictable) return false;
    if (overlapping_pages_ == 0 || missing + overlapping_pages_ <= evictable) return true;
    return missing + kept.freeable <= freeable_pages();
}

/// Of all evictable pages, those that evicting makes free. O(nodes + evictable pages): only asked
/// when forks hold pages of the tree and the pool is nearly exhausted.
template <page_source Pages, eviction_policy Policy, token_type T>
std::size_t RadixCache<Pages, Policy, T>::freeable_pages() const noexcept {
    std::size_t freeable = 0;
    for (const Root& root : roots_) {
        if (root.node == no_node || root.detached) continue;
        for (NodeId node = tree_.next_in(root.node, root.node); node != no_node;
             node = tree_.next_in(root.node, node)) {
            if (!is_pinned(node)) freeable += freeable_among(tree_.values(node));
        }
    }
    return freeable;
}

/// Of these pages of the tree, those that nobody but the tree holds.
template <page_source Pages, eviction_policy Policy, token_type T>
std::size_t RadixCache<Pages, Policy, T>::freeable_among(
    std::span<const PageId> pages) const noexcept {
    if (overlapping_pages_ == 0) return pages.size();
    std::size_t freeable = 0;
    for (const PageId page : pages) freeable += pages_.refs(page) == 1 ? 1 : 0;
    return freeable;
}

// --- Eviction ------------------------------------------------------------------------------------

template <page_source Pages, eviction_policy Policy, token_type T>
std::size_t RadixCache<Pages, Policy, T>::evict(std::size_t pages) noexcept {
    Nodes nodes{tree_};
    std::size_t evicted = 0;
    while (evicted < pages) {
        const NodeId leaf = policy_.victim(nodes);
        if (leaf == no_node) break;
        std::size_t most = pages - evicted;
        if constexpr (requires { policy_.run(nodes, leaf); }) {
            const std::size_t run = policy_.run(nodes, leaf);
            if (run < most) most = run;
        }
        evicted += evict_from(leaf, most);
        look_ahead(nodes);
    }
    counters_.evicted_pages += evicted;
    tree_.tidy();
    return evicted;
}

/// Evicts as many pages as `out` has places, if there are so many, and hands their holds on to the
/// caller. Requires: no page in the tree is held by anyone else.
template <page_source Pages, eviction_policy Policy, token_type T>
std::size_t RadixCache<Pages, Policy, T>::evict_into(std::span<PageId> out) noexcept {
    waiting_ = out;
    const std::size_t evicted = evict(out.size());
    waiting_ = {};
    return evicted;
}

/// The next evictions will wait for memory that nobody touched for long; the processor can fetch it
/// meanwhile. Of the victim a few evictions from now, which was fetched last time, all that its
/// removal touches; of the one after it, the node. (An eviction that waits for nothing takes a
/// third of the time that memory does, hence so far ahead.)
template <page_source Pages, eviction_policy Policy, token_type T>
void RadixCache<Pages, Policy, T>::look_ahead([[maybe_unused]] Nodes& nodes) const noexcept {
    if constexpr (requires { policy_.victim_after(nodes, no_node); }) {
        constexpr int ahead = 2;
        NodeId soon = policy_.victim(nodes);
        for (int i = 0; i < ahead && soon != no_node; ++i) soon = policy_.victim_after(nodes, soon);
        if (soon == no_node) return;
        tree_.prefetch_removal(soon);
        const NodeId after = policy_.victim_after(nodes, soon);
        if (after != no_node) tree_.prefetch(after);
    }
}

/// Evicts from the tail of a leaf.
template <page_source Pages, eviction_policy Policy, token_type T>
std::size_t RadixCache<Pages, Policy, T>::evict_from(NodeId leaf, std::size_t most) noexcept {
    const std::uint32_t held = tree_.pages(leaf);
    if (most >= held) {
        remove_node(leaf);
        return held;
    }
    if constexpr (requires(Nodes& nodes) { policy_.trimming(nodes, leaf, std::uint32_t{}); }) {
        Nodes nodes{tree_};
        policy_.trimming(nodes, leaf, static_cast<std::uint32_t>(most));
    }
    leave_tree(tree_.values(leaf).last(most));
    tree_.trim(leaf, held - static_cast<std::uint32_t>(most));
    return most;
}

template <page_source Pages, eviction_policy Policy, token_type T>
void RadixCache<Pages, Policy, T>::make_room(std::size_t wanted) noexcept {
    while (pages_.free_pages() < wanted) {
        if (evict(wanted - pages_.free_pages()) == 0) return;
    }
}

// --- Statistics and pictures ---------------------------------------------------------------------

template <page_source Pages, eviction_policy Policy, token_type T>
std::uint32_t RadixCache<Pages, Policy, T>::refs(PageId page) const {
    if (index_of(page) >= pages_.capacity_pages()) {
        detail::fail<InvalidArgument>("page %u is outside the pool of %zu pages", index_of(page),
                                      std::size_t{pages_.capacity_pages()});
    }
    std::uint32_t owners = 0;
    visit_trees([&](const Namespace&, const Tree& tree, NodeId root) {
        for (NodeId node = tree.next_in(root, root); node != no_node;
             node = tree.next_in(root, node)) {
            for (const PageId cached : tree.values(node)) owners += cached == page ? 1 : 0;
        }
    });
    for (const State* state : leases_) {
        for (const PageId held : state->table.view()) owners += held == page ? 1 : 0;
    }
    return owners;
}

template <page_source Pages, eviction_policy Policy, token_type T>
RadixCacheStats RadixCache<Pages, Policy, T>::stats() const noexcept {
    RadixCacheStats stats = counters_;
    stats.capacity_pages = pages_.capacity_pages();
    stats.free_pages = pages_.free_pages();
    stats.cached_pages = cached_pages();
    stats.pinned_pages = pinned_pages();
    stats.evictable_pages = evictable_pages();
    stats.leases = leases_.size();
    stats.namespaces = namespaces_.size();
    stats.nodes = tree_.node_count();
    stats.index_bytes = tree_.bytes() + namespaces_.bytes() + in_tree_.bytes();
    if constexpr (requires { policy_.bytes(); }) stats.index_bytes += policy_.bytes();
    return stats;
}

template <page_source Pages, eviction_policy Policy, token_type T>
template <class Visit>
void RadixCache<Pages, Policy, T>::visit_trees(Visit&& visit) const {
    const Tree& tree = tree_;
    if (default_root_ != detail::no_root) visit(Namespace{}, tree, roots_[default_root_].node);
    for (std::uint32_t root = 0; root < roots_.size(); ++root) {
        const Root& record = roots_[root];
        if (record.node == no_node || record.detached || root == default_root_) continue;
        visit(namespaces_.name_of(record.entry), tree, record.node);
    }
}

// --- Audit ---------------------------------------------------------------------------------------

template <page_source Pages, eviction_policy Policy, token_type T>
AuditReport RadixCache<Pages, Policy, T>::audit() const {
    AuditReport report;
    tree_.audit(report);
    audit_pins(report);
    audit_pages(report);
    audit_leases(report);
    report.require(counters_.hit_tokens + counters_.missed_tokens == counters_.queried_tokens,
                   "hit tokens + missed tokens is not queried tokens", counters_.queried_tokens);
    return report;
}

/// Pins are what the leases and the pinned children add up to, and the page counts follow from
/// them.
template <page_source Pages, eviction_policy Policy, token_type T>
void RadixCache<Pages, Policy, T>::audit_pins(AuditReport& report) const {
    std::size_t pinned = 0;
    std::size_t detached = 0;
    std::size_t unpinned_nodes = 0;
    for (std::uint32_t r = 0; r < roots_.size(); ++r) {
        const Root& root = roots_[r];
        if (root.node == no_node) continue;
        report.require(tree_.data(root.node).pins == r, "a root does not know its record", r);
        std::uint32_t leases = 0;
        for (const State* state : leases_) leases += state->root == r ? 1 : 0;
        report.require(leases == root.leases, "a tree's lease count is not its leases", r);
        for (NodeId node = tree_.next_in(root.node, root.node); node != no_node;
             node = tree_.next_in(root.node, node)) {
            std::uint32_t pins = 0;
            for (const State* state : leases_) pins += state->node == node ? 1 : 0;
            for (NodeId child = tree_.first_child(node); child != no_node;
                 child = tree_.next_sibling(child)) {
                pins += is_pinned(child) ? 1 : 0;
            }
            const auto subject = static_cast<std::uint64_t>(node);
            report.require(pins == tree_.data(node).pins,
                           "a node's pins are not its leases + its pinned children", subject);
            report.require(pins != 0 || !root.detached, "a detached node without a lease", subject);
            (root.detached ? detached : pinned) += pins != 0 ? tree_.pages(node) : 0;
            unpinned_nodes += pins == 0 ? 1 : 0;
        }
    }
    report.require(pinned == pinned_pages_, "the pinned page count is wrong", pinned);
    report.require(detached == detached_pages_, "the detached page count is wrong", detached);
    if constexpr (requires(Nodes& nodes) { policy_.audit(nodes, report, unpinned_nodes); }) {
        Nodes nodes{const_cast<Tree&>(tree_)};  // a policy's view; an audit only looks
        policy_.audit(nodes, report, unpinned_nodes);
    }
}

/// Every page has exactly the owners that hold it, and stands in the tree at most once.
template <page_source Pages, eviction_policy Policy, token_type T>
void RadixCache<Pages, Policy, T>::audit_pages(AuditReport& report) const {
    std::vector<std::uint32_t> holds(pages_.capacity_pages());
    std::vector<bool> in_tree(holds.size());
    for (const Root& root : roots_) {
        if (root.node == no_node) continue;
        for (NodeId node = tree_.next_in(root.node, root.node); node != no_node;
             node = tree_.next_in(root.node, node)) {
            for (const PageId page : tree_.values(node)) {
                ++holds[index_of(page)];
                if (root.detached) continue;
                report.require(!in_tree[index_of(page)], "a page stands in the tree twice",
                               index_of(page));
                in_tree[index_of(page)] = true;
            }
        }
    }
    std::size_t overlapping = 0;
    std::size_t marked = 0;
    for (const State* state : leases_) {
        for (std::size_t i = 0; i < state->table.size(); ++i) {
            if (state->holds_privately(i)) ++holds[index_of(state->table[i])];
        }
    }
    std::size_t free = 0;
    for (std::size_t i = 0; i < holds.size(); ++i) {
        const std::uint32_t refs = pages_.refs(PageId{static_cast<std::uint32_t>(i)});
        report.require(refs == holds[i], "a page's count is not the number of its owners", i);
        free += holds[i] == 0 ? 1 : 0;
        overlapping += in_tree[i] && holds[i] > 1 ? 1 : 0;
        const bool mark = in_tree_.contains(PageId{static_cast<std::uint32_t>(i)});
        marked += mark ? 1 : 0;
        report.require(in_tree[i] ? mark || (trusts_pages && holds[i] == 1) : !mark,
                       "a page's mark does not say whether it is in the tree", i);
    }
    report.require(marked == in_tree_.count(), "the marked page count is wrong", marked);
    report.require(free == pages_.free_pages(), "free + held is not the capacity", free);
    report.require(overlapping == overlapping_pages_, "the overlapping page count is wrong",
                   overlapping);
}

/// A lease's shared pages are those on its node's path, except where it still names its own copies.
template <page_source Pages, eviction_policy Policy, token_type T>
void RadixCache<Pages, Policy, T>::audit_leases(AuditReport& report) const {
    for (std::size_t place = 0; place < leases_.size(); ++place) {
        const State& state = *leases_[place];
        report.require(state.place == place && state.cache == this, "a lease is not where it says",
                       place);
        std::size_t index = state.shared_pages;
        std::size_t way = state.path.size();
        for (NodeId node = state.node; node != no_node && !tree_.is_root(node);
             node = tree_.parent(node)) {
            if (way != 0 && state.path[way - 1] == node) --way;
            for (std::size_t i = tree_.pages(node); i-- > 0 && index-- > 0;) {
                const bool same = state.table[index] == tree_.values(node)[i];
                report.require(same != state.holds_privately(index),
                               "a shared page of a lease is not the tree's", place);
            }
        }
        report.require(index == 0, "a lease's node does not cover its shared pages", place);
        report.require(way == 0, "a lease keeps nodes that are not on its path", place);
        report.require(state.slid_pages != 0 ||
                           state.written == state.shared_pages * page_tokens() + state.tail.size(),
                       "a lease's tokens are not as many as its rows", place);
        report.require(state.written <= state.table.size() * page_tokens(),
                       "a lease has more rows than room", place);
        for (std::size_t i = state.kept_from / page_tokens(); i < state.table.size(); ++i) {
            report.require(state.table[i] != no_page, "a lease lacks a page it needs", place);
        }
    }
}

}  // namespace kvstem
