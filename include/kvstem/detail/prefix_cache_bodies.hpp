// SPDX-License-Identifier: MIT
// Bodies of PrefixCache: finding, storing, the order of use, dropping, auditing.
#pragma once

#include "../prefix_cache.hpp"

namespace kvstem::inline KVSTEM_ABI {

// --- Looking up ----------------------------------------------------------------------------------

/// The greatest length up to `tokens` that an entry can be cut to; its own length needs no cut.
template <kv_snapshot KvCache, token_type T, class Logits>
std::size_t PrefixCache<KvCache, T, Logits>::cut_of(std::uint32_t slot,
                                                    std::size_t tokens) const noexcept {
    if (tokens >= slots_[slot].tokens) return slots_[slot].tokens;
    if constexpr (!sliceable_kv_snapshot<KvCache>) {
        return 0;
    } else if constexpr (has_longest_cut<KvCache>) {
        const std::size_t cut = Traits::longest_cut(*slots_[slot].kv, tokens);
        return cut < tokens ? cut : tokens;
    } else {
        return tokens;
    }
}

/// The best match (S1). Walks from the deepest matched node towards the root: the entries below
/// each node share the same number of tokens with the prompt, except those that were looked at
/// before.
template <kv_snapshot KvCache, token_type T, class Logits>
auto PrefixCache<KvCache, T, Logits>::locate(Tokens prompt, const Namespace& name) const noexcept
    -> Found {
    const NodeId root = root_of(name);
    if (root == no_node) return {};
    const TreeMatch match = tree_.find(root, prompt);
    auto tokens = static_cast<std::size_t>(match.pages);
    std::size_t node_tokens = match.node_pages;
    bool ends_here = match.node_pages == tree_.pages(match.node);
    Found best;
    NodeId except = no_node;
    for (NodeId node = match.node; node != root; node = tree_.parent(node)) {
        if (best.tokens > tokens) break;
        const std::uint32_t entry = tree_.data(node).entry;
        if (ends_here && entry != none) return {entry, tokens};
        if constexpr (sliceable_kv_snapshot<KvCache>) consider_below(node, except, tokens, best);
        if (best.tokens == tokens) break;
        except = node;
        tokens -= node_tokens;
        node_tokens = tree_.pages(tree_.parent(node));
        ends_here = true;
    }
    return best;
}

/// Improves `best` by the entries below `top`, all of which share `tokens` tokens with the prompt.
template <kv_snapshot KvCache, token_type T, class Logits>
void PrefixCache<KvCache, T, Logits>::consider_below(NodeId top, NodeId except, std::size_t tokens,
                                                     Found& best) const noexcept {
    const auto consider = [&](std::uint32_t entry) noexcept {
        const std::size_t cut = cut_of(entry, tokens);
        if (cut == 0 || cut < best.tokens) return;
        if (cut > best.tokens || used_later(entry, best.slot)) best = {entry, cut};
    };
    // The entry used last is asked first: if it can be cut right here, no other is better.
    consider(tree_.data(top).newest);
    if (best.tokens == tokens) return;
    // One that ends with `top` itself counts when the match ends inside that node: the walk omits
    // it.
    if (tree_.data(top).entry != none) consider(tree_.data(top).entry);
    NodeId node = tree_.next_in(top, top);
    while (node != no_node) {
        if (node == except) {
            node = tree_.next_after(top, node);
            continue;
        }
        if (tree_.data(node).entry != none) consider(tree_.data(node).entry);
        node = tree_.next_in(top, node);
    }
}

template <kv_snapshot KvCache, token_type T, class Logits>
auto PrefixCache<KvCache, T, Logits>::copy_out(const Found& found) const -> Hit {
    const Slot& slot = slots_[found.slot];
    const auto copy = [&]() -> KvCache {
        const bool whole = found.tokens == slot.tokens;
        if constexpr (std::copy_constructible<KvCache>) {
            if (whole) return *slot.kv;
        }
        if constexpr (has_prefix<KvCache>) {
            return Traits::prefix(*slot.kv, found.tokens);
        } else {
            KvCache kv(*slot.kv);
            if constexpr (has_truncate<KvCache>) Traits::truncate(kv, found.tokens);
            return kv;
        }
    };
    Hit hit{copy(), found.tokens, {}, false};
    if (Traits::length(hit.kv) != found.tokens) {
        detail::fail<InvalidArgument>("a KV cut to %zu positions says that it holds %zu",
                                      found.tokens, std::size_t{Traits::length(hit.kv)});
    }
    if (found.tokens == slot.tokens) hit.logits = slot.logits;
    return hit;
}

template <kv_snapshot KvCache, token_type T, class Logits>
void PrefixCache<KvCache, T, Logits>::count(std::size_t queried_tokens,
                                            std::size_t hit_tokens) noexcept {
    ++(hit_tokens != 0 ? counters_.hits : counters_.misses);
    counters_.queried_tokens += queried_tokens;
    counters_.hit_tokens += hit_tokens;
    counters_.missed_tokens += queried_tokens - hit_tokens;
}

template <kv_snapshot KvCache, token_type T, class Logits>
auto PrefixCache<KvCache, T, Logits>::acquire(Tokens prompt, const Namespace& name)
    -> std::optional<Hit>
    requires copyable_kv_snapshot<KvCache>
{
    const Found found = locate(prompt, name);
    std::optional<Hit> hit;
    if (found.slot != none) {
        hit.emplace(copy_out(found));
        use(found.slot);
    }
    count(prompt.size(), found.tokens);
    return hit;
}

template <kv_snapshot KvCache, token_type T, class Logits>
auto PrefixCache<KvCache, T, Logits>::take(Tokens prompt, const Namespace& name)
    -> std::optional<Hit> {
    const Found found = locate(prompt, name);
    std::optional<Hit> hit;
    if (found.slot == none) {
        count(prompt.size(), 0);
        return hit;
    }
    Slot& slot = slots_[found.slot];
    if (found.tokens == slot.tokens) {
        hit.emplace(Hit{std::move(*slot.kv), slot.tokens, std::move(slot.logits), true});
        remove(found.slot);
        tree_.tidy();
        ++counters_.taken;
    } else if constexpr (copyable_kv_snapshot<KvCache>) {
        hit.emplace(copy_out(found));
        use(found.slot);
    }
    count(prompt.size(), hit ? hit->tokens : 0);
    return hit;
}

// --- Storing -------------------------------------------------------------------------------------

template <kv_snapshot KvCache, token_type T, class Logits>
std::size_t PrefixCache<KvCache, T, Logits>::bytes_of(
    Tokens tokens, const KvCache& kv, const std::optional<Logits>& logits) noexcept {
    std::size_t bytes = Traits::bytes(kv);
    const auto add = [&bytes](std::size_t more) noexcept {
        bytes = more > unlimited - bytes ? unlimited : bytes + more;
    };
    add(tokens.size_bytes());
    if constexpr (requires(const Logits& l) { std::span(l.data(), l.size()); }) {
        if (logits) add(std::span(logits->data(), logits->size()).size_bytes());
    }
    return bytes;
}

template <kv_snapshot KvCache, token_type T, class Logits>
template <class Kv, class OptionalLogits>
StoreOutcome PrefixCache<KvCache, T, Logits>::store_from(Tokens tokens, Kv&& kv,
                                                         OptionalLogits&& logits,
                                                         const Namespace& name) {
    const std::size_t length = Traits::length(kv);
    if (length != tokens.size()) {
        detail::fail<InvalidArgument>("a KV of %zu positions cannot be stored under %zu tokens",
                                      length, tokens.size());
    }
    if (tokens.empty()) return StoreOutcome::empty;
    const std::size_t bytes = bytes_of(tokens, kv, logits);
    if (capacity_.max_entries == 0 || bytes > capacity_.max_bytes) {
        ++counters_.refused;
        return StoreOutcome::too_large;
    }
    // First all that can fail: copies are made here, what is moved in is left alone until the end.
    std::conditional_t<std::is_lvalue_reference_v<Kv>, KvCache, KvCache&&> new_kv(
        std::forward<Kv>(kv));
    std::conditional_t<std::is_lvalue_reference_v<OptionalLogits>, std::optional<Logits>,
                       std::optional<Logits>&&>
        new_logits(std::forward<OptionalLogits>(logits));
    reserve_slot();
    const NodeId node = node_for(tokens, name);

    std::uint32_t slot = tree_.data(node).entry;
    const bool replaces = slot != none;
    if (replaces) {
        bytes_ -= slots_[slot].bytes;
        --entries_;
    } else {
        slot = take_slot(node);
        link_as_newest(slot);
    }
    use(slot);  // as the newest it is not evicted to make room for itself
    make_room(bytes, 1);
    slots_[slot].kv.reset();
    slots_[slot].kv.emplace(std::move(new_kv));
    slots_[slot].logits = std::move(new_logits);
    slots_[slot].tokens = tokens.size();
    slots_[slot].bytes = bytes;
    bytes_ += bytes;
    ++entries_;
    ++counters_.stored;
    counters_.replaced += replaces ? 1 : 0;
    tree_.tidy();
    return replaces ? StoreOutcome::replaced : StoreOutcome::stored;
}

/// The root of a namespace, which is added if it is new.
template <kv_snapshot KvCache, token_type T, class Logits>
NodeId PrefixCache<KvCache, T, Logits>::root_for(const Namespace& name) {
    const NodeId known = root_of(name);
    if (known != no_node) return known;
    const NodeId root = tree_.add_root();
    detail::on_failure(
        [&] { tree_.data(root).entry = namespaces_.add(name, static_cast<std::uint32_t>(root)); },
        [&]() noexcept { tree_.remove_root(root); });
    return root;
}

/// The node that ends with the last of `tokens`; adds what is missing of its path.
template <kv_snapshot KvCache, token_type T, class Logits>
NodeId PrefixCache<KvCache, T, Logits>::node_for(Tokens tokens, const Namespace& name) {
    const NodeId root = root_for(name);
    const TreeMatch match = tree_.find(root, tokens);
    NodeId node = match.node;
    const bool splits = match.node_pages < tree_.pages(node);
    detail::on_failure(
        [&] {
            if (splits) {
                node = tree_.split(match.node, match.node_pages);
                tree_.data(node).entry = none;
            }
            const Tokens rest = tokens.subspan(static_cast<std::size_t>(match.pages));
            if (!rest.empty()) node = tree_.insert(node, rest, {});
        },
        [&]() noexcept {
            if (splits && node != match.node) tree_.join_with_parent(match.node);
            drop_empty_root(root);
        });
    return node;
}

template <kv_snapshot KvCache, token_type T, class Logits>
void PrefixCache<KvCache, T, Logits>::make_room(std::size_t bytes, std::size_t entries) noexcept {
    while (bytes_ > capacity_.max_bytes - bytes || entries_ > capacity_.max_entries - entries) {
        remove(oldest_);
        ++counters_.evictions;
    }
}

// --- Slots and the order of use ------------------------------------------------------------------

template <kv_snapshot KvCache, token_type T, class Logits>
void PrefixCache<KvCache, T, Logits>::reserve_slot() {
    if (free_slot_ != none) return;
    if (slots_.size() >= none) detail::fail<InvalidArgument>("more than %u entries", none);
    slots_.emplace_back();
    free_slot_ = static_cast<std::uint32_t>(slots_.size() - 1);
}

template <kv_snapshot KvCache, token_type T, class Logits>
std::uint32_t PrefixCache<KvCache, T, Logits>::take_slot(NodeId node) noexcept {
    const std::uint32_t slot = free_slot_;
    free_slot_ = slots_[slot].newer;
    slots_[slot].node = node;
    tree_.data(node).entry = slot;
    return slot;
}

template <kv_snapshot KvCache, token_type T, class Logits>
void PrefixCache<KvCache, T, Logits>::give_slot(std::uint32_t slot) noexcept {
    unlink(slot);
    Slot& s = slots_[slot];
    bytes_ -= s.bytes;
    --entries_;
    s.kv.reset();  // one by one, because a KV type need not be assignable
    s.logits.reset();
    s.tokens = 0;
    s.bytes = 0;
    s.node = no_node;
    s.older = none;
    s.newer = free_slot_;
    free_slot_ = slot;
}

template <kv_snapshot KvCache, token_type T, class Logits>
void PrefixCache<KvCache, T, Logits>::link_as_newest(std::uint32_t slot) noexcept {
    slots_[slot].newer = none;
    slots_[slot].older = newest_;
    (newest_ == none ? oldest_ : slots_[newest_].newer) = slot;
    newest_ = slot;
}

template <kv_snapshot KvCache, token_type T, class Logits>
void PrefixCache<KvCache, T, Logits>::unlink(std::uint32_t slot) noexcept {
    const Slot& s = slots_[slot];
    (s.newer == none ? newest_ : slots_[s.newer].older) = s.older;
    (s.older == none ? oldest_ : slots_[s.older].newer) = s.newer;
}

/// Stamps an entry as used now, here and on its whole path: it is the newest of each subtree it is
/// in.
template <kv_snapshot KvCache, token_type T, class Logits>
void PrefixCache<KvCache, T, Logits>::use(std::uint32_t slot) noexcept {
    unlink(slot);
    link_as_newest(slot);
    slots_[slot].stamp = Stamp{++clock_};
    for (NodeId node = slots_[slot].node; node != no_node; node = tree_.parent(node)) {
        tree_.data(node).newest = slot;
        tree_.move_to_front(node);
    }
}

/// Removes an entry and the nodes that only led to it.
template <kv_snapshot KvCache, token_type T, class Logits>
void PrefixCache<KvCache, T, Logits>::remove(std::uint32_t slot) noexcept {
    NodeId node = slots_[slot].node;
    give_slot(slot);
    tree_.data(node).entry = none;
    while (!tree_.is_root(node) && tree_.child_count(node) == 0 && tree_.data(node).entry == none) {
        const NodeId above = tree_.parent(node);
        tree_.remove_leaf(node);
        node = above;
    }
    forget_newest(node, slot);
    if (tree_.is_root(node)) return drop_empty_root(node);
    // A branching that is none any more goes, so that what once diverged here costs nothing now.
    if (tree_.data(node).entry == none && tree_.child_count(node) == 1) {
        tree_.join_with_parent(tree_.first_child(node));
    }
}

/// A removed entry is the newest of no subtree any more, from `node` upwards.
template <kv_snapshot KvCache, token_type T, class Logits>
void PrefixCache<KvCache, T, Logits>::forget_newest(NodeId node, std::uint32_t slot) noexcept {
    while (node != no_node && tree_.data(node).newest == slot) {
        const NodeId child = tree_.first_child(node);
        std::uint32_t newest = child == no_node ? none : tree_.data(child).newest;
        const bool root = tree_.is_root(node);
        if (!root && used_later(tree_.data(node).entry, newest)) newest = tree_.data(node).entry;
        tree_.data(node).newest = newest;
        if (!root) settle(node);
        node = tree_.parent(node);
    }
}

/// Moves a node whose subtree has lost its newest entry behind the siblings that were used since.
template <kv_snapshot KvCache, token_type T, class Logits>
void PrefixCache<KvCache, T, Logits>::settle(NodeId node) noexcept {
    NodeId behind = no_node;
    for (NodeId next = tree_.next_sibling(node);
         next != no_node && used_later(tree_.data(next).newest, tree_.data(node).newest);
         next = tree_.next_sibling(next)) {
        behind = next;
    }
    if (behind != no_node) tree_.move_behind(node, behind);
}

// --- Dropping ------------------------------------------------------------------------------------

template <kv_snapshot KvCache, token_type T, class Logits>
bool PrefixCache<KvCache, T, Logits>::evict() noexcept {
    if (oldest_ == none) return false;
    remove(oldest_);
    ++counters_.evictions;
    tree_.tidy();
    return true;
}

/// Removes everything below a root, leaf by leaf; nothing of it has to be kept in order meanwhile.
template <kv_snapshot KvCache, token_type T, class Logits>
std::size_t PrefixCache<KvCache, T, Logits>::drop_below(NodeId root) noexcept {
    const std::size_t before = entries_;
    NodeId node = root;
    while (tree_.child_count(root) != 0) {
        while (tree_.child_count(node) != 0) node = tree_.first_child(node);
        const NodeId above = tree_.parent(node);
        if (tree_.data(node).entry != none) give_slot(tree_.data(node).entry);
        tree_.remove_leaf(node);
        node = above;
    }
    tree_.data(root).newest = none;
    drop_empty_root(root);
    return before - entries_;
}

template <kv_snapshot KvCache, token_type T, class Logits>
void PrefixCache<KvCache, T, Logits>::drop_empty_root(NodeId root) noexcept {
    if (root == default_root_ || tree_.child_count(root) != 0) return;
    namespaces_.remove(tree_.data(root).entry);
    tree_.remove_root(root);
}

template <kv_snapshot KvCache, token_type T, class Logits>
void PrefixCache<KvCache, T, Logits>::clear() noexcept {
    drop_below(default_root_);
    for (const auto& entry : namespaces_.entries()) {
        if (entry.root != 0) drop_below(NodeId{entry.root});
    }
    tree_.tidy();
}

template <kv_snapshot KvCache, token_type T, class Logits>
std::size_t PrefixCache<KvCache, T, Logits>::drop(const Namespace& name) noexcept {
    const NodeId root = root_of(name);
    if (root == no_node) return 0;
    const std::size_t dropped = drop_below(root);
    tree_.tidy();
    return dropped;
}

// --- Statistics and audit ------------------------------------------------------------------------

template <kv_snapshot KvCache, token_type T, class Logits>
PrefixCacheStats PrefixCache<KvCache, T, Logits>::stats() const noexcept {
    PrefixCacheStats stats = counters_;
    stats.entries = entries_;
    stats.bytes = bytes_;
    stats.index_bytes = tree_.bytes() + namespaces_.bytes() + slots_.capacity() * sizeof(Slot);
    stats.namespaces = namespaces_.size();
    return stats;
}

template <kv_snapshot KvCache, token_type T, class Logits>
AuditReport PrefixCache<KvCache, T, Logits>::audit() const {
    AuditReport report;
    tree_.audit(report);
    audit_order(report);
    audit_subtree(report, default_root_);
    for (const auto& entry : namespaces_.entries()) {
        if (entry.root != 0) audit_subtree(report, NodeId{entry.root});
    }
    report.require(counters_.hit_tokens + counters_.missed_tokens == counters_.queried_tokens,
                   "hit tokens + missed tokens is not queried tokens", counters_.queried_tokens);
    report.require(entries_ <= capacity_.max_entries, "more entries than the capacity", entries_);
    report.require(bytes_ <= capacity_.max_bytes, "more bytes than the capacity", bytes_);
    return report;
}

template <kv_snapshot KvCache, token_type T, class Logits>
void PrefixCache<KvCache, T, Logits>::audit_order(AuditReport& report) const {
    std::size_t entries = 0;
    std::size_t bytes = 0;
    std::uint32_t newer = none;
    for (std::uint32_t slot = newest_; slot != none; slot = slots_[slot].older) {
        const Slot& s = slots_[slot];
        report.require(s.newer == newer, "an entry is linked one way only", slot);
        report.require(newer == none || slots_[newer].stamp > s.stamp,
                       "an entry stands before one that was used later", slot);
        report.require(s.kv.has_value() && Traits::length(*s.kv) == s.tokens,
                       "an entry's KV is not as long as its tokens", slot);
        std::size_t depth = 0;
        for (NodeId node = s.node; node != no_node; node = tree_.parent(node)) {
            depth += tree_.pages(node);
            report.require(!used_later(slot, tree_.data(node).newest),
                           "a node does not know the newest entry below it", slot);
        }
        report.require(depth == s.tokens && tree_.data(s.node).entry == slot,
                       "an entry does not stand where its tokens end", slot);
        bytes += s.bytes;
        newer = slot;
        if (++entries > entries_) break;
    }
    report.require(entries == entries_, "the entry count is not the number of entries", entries);
    report.require(bytes == bytes_, "the byte count is not the sum over the entries", bytes);
}

template <kv_snapshot KvCache, token_type T, class Logits>
void PrefixCache<KvCache, T, Logits>::audit_subtree(AuditReport& report, NodeId root) const {
    for (NodeId node = tree_.next_in(root, root); node != no_node;
         node = tree_.next_in(root, node)) {
        const NodeData& data = tree_.data(node);
        const auto subject = static_cast<std::uint64_t>(node);
        report.require(data.entry == none ||
                           (slots_[data.entry].kv.has_value() && slots_[data.entry].node == node),
                       "a node names an entry that does not end there", subject);
        report.require(data.entry != none || tree_.child_count(node) != 0, "a leaf holds no entry",
                       subject);
        const std::span<const T> tokens = tree_.tokens(node);
        report.require(
            data.entry != none || tree_.child_count(node) != 1 ||
                tree_.tokens(tree_.first_child(node)).data() != tokens.data() + tokens.size(),
            "a node is cut in two where nothing ends and nothing branches", subject);
        if (data.newest == none) {
            report.add("a node has no newest entry", subject);
            continue;
        }
        NodeId above = slots_[data.newest].node;
        while (above != node && above != no_node) above = tree_.parent(above);
        report.require(above == node, "the newest entry below a node is not below it", subject);
        const NodeId next = tree_.next_sibling(node);
        report.require(next == no_node || !used_later(tree_.data(next).newest, data.newest),
                       "siblings are not in the order of their last use", subject);
    }
}

}  // namespace kvstem
