// SPDX-License-Identifier: MIT
// RadixTree: token sequences as paths of a path-compressed tree, found without scanning anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "audit.hpp"
#include "config.hpp"
#include "detail/child_table.hpp"
#include "detail/compare.hpp"
#include "detail/fetch_ahead.hpp"
#include "detail/hash.hpp"
#include "detail/node_pool.hpp"
#include "detail/run_store.hpp"
#include "errors.hpp"
#include "token.hpp"

namespace kvstem::inline KVSTEM_ABI {

using detail::NoValue;

/// Names a node of one tree while that node lives. 0 is no node.
enum class NodeId : std::uint32_t {};
/// Of no tree: what stands where there is no node.
inline constexpr NodeId no_node{0};

/// A node id that notices when the node is gone: ids are reused, handles are not (until 2^32 nodes
/// were made after it).
struct NodeHandle {
    NodeId node = no_node;
    std::uint32_t generation = 0;
};

/// How far a sequence could be followed.
struct TreeMatch {
    NodeId node = no_node;  ///< the deepest node of which anything matched; the root if nothing
    std::uint32_t node_pages = 0;  ///< matched pages of that node: all, unless it ends inside
    std::uint64_t pages = 0;       ///< matched pages from the root
};

/// A radix tree over token sequences: which prefixes are known, and what stands at each page of
/// them.
///
/// Both caches find their entries through it. It knows tokens, pages and nodes, and nothing else:
/// no recency, no pins, no ownership of what a value names. Use it directly to build a third kind
/// of cache; to cache KV, take PrefixCache or RadixCache.
///
///     root ─┬─ [1 2 3 4]─┬─ [5 6]          a node is a slice of a run: tokens and one Value a page
///           │            └─ [7 8 9 9]      siblings differ somewhere in their first page
///           └─ [2 2]                       P = 2: every edge is a whole number of pages
///
/// Template parameters: `T` the token type; `Value` what stands at each page (PageId, or NoValue
/// for nothing); `NodeData` what the owner keeps in every node, trivially copyable,
/// value-initialised for new nodes. With a NodeData of 12 bytes a node is one cache line.
///
/// Invariants (checked by `audit`):
///
///   - every node but a root has at least one page, a parent, and siblings that differ from it
///     within their first page, so a sequence has one path;
///   - the nodes that are slices of one run are a chain of ancestors, and together they are the
///     live prefix of that run;
///   - siblings stand in the order the owner gave them, a new one first; the first child is the one
///     that `find` tries before it hashes anything.
///
/// Complexity: with n tokens compared and d nodes passed, `find` is O(n + d); `insert` O(new
/// tokens); `split`, `join`, `trim`, `remove_leaf` O(P), amortised with the moving of runs in
/// `tidy`. No operation recurses, scans siblings, or copies tokens that are in the tree already.
///
/// Invalidation: node ids stay valid until their node is removed or joined away. Spans from
/// `tokens` and `values` are invalidated by every non-const call.
/// Exceptions: `insert`, `split` and `add_root` throw std::bad_alloc, `insert` and the constructor
/// also InvalidArgument; then nothing has changed. `audit` allocates its report. All else is
/// noexcept, and what it requires is only asserted: this is the floor that the caches stand on.
/// Threads: const calls may run side by side; anything else needs the tree alone.
template <token_type T, class Value, class NodeData>
class RadixTree {
    static_assert(std::is_trivially_copyable_v<Value> && std::is_trivially_copyable_v<NodeData>);

  public:
    /// Throws InvalidArgument for a page size of 0 or one whose pages cannot be addressed.
    explicit RadixTree(std::size_t page_tokens) : page_tokens_(page_tokens), runs_(page_tokens) {
        if (page_tokens == 0)
            detail::fail<InvalidArgument>("page size must be at least 1 token, got 0");
        if (!runs_.fits(1)) {
            detail::fail<InvalidArgument>("a page of %zu tokens is too large to address",
                                          page_tokens);
        }
    }

    [[nodiscard]] std::size_t page_tokens() const noexcept { return page_tokens_; }

    // --- Finding ---------------------------------------------------------------------------------

    /// Follows `tokens` from `root` as far as whole pages agree. Changes nothing.
    [[nodiscard]] TreeMatch find(NodeId root, std::span<const T> tokens) const noexcept {
        return find(root, tokens, [](NodeId) noexcept {});
    }
    /// The same, calling `visit(node)` for each node of which anything matched, from the top down.
    template <class Visit>
    [[nodiscard]] TreeMatch find(NodeId root, std::span<const T> tokens, Visit&& visit) const;

    /// Of the page that follows a match, how many leading tokens agree with some page that stands
    /// there, and the node and page index where (M8). `tokens`: what follows the matched pages.
    /// O(P) inside a node, O(P × children) at the end of one.
    struct PartialPage {
        NodeId node = no_node;
        std::uint32_t page = 0;
        std::size_t tokens = 0;  ///< 0: nothing agrees
    };
    [[nodiscard]] PartialPage find_partial(const TreeMatch& match,
                                           std::span<const T> tokens) const noexcept;

    // --- Looking at nodes ------------------------------------------------------------------------

    [[nodiscard]] std::uint32_t pages(NodeId node) const noexcept { return at(node).pages; }
    [[nodiscard]] std::span<const T> tokens(NodeId node) const noexcept {
        return {at(node).tokens, at(node).pages * page_tokens_};
    }
    [[nodiscard]] std::span<const Value> values(NodeId node) const noexcept {
        return {at(node).values, at(node).pages};
    }
    [[nodiscard]] NodeId parent(NodeId node) const noexcept { return at(node).parent; }
    [[nodiscard]] std::uint32_t child_count(NodeId node) const noexcept {
        return at(node).child_count;
    }
    [[nodiscard]] NodeId first_child(NodeId node) const noexcept { return at(node).first_child; }
    [[nodiscard]] NodeId next_sibling(NodeId node) const noexcept { return links(node).next; }
    [[nodiscard]] bool is_root(NodeId node) const noexcept { return at(node).parent == no_node; }
    [[nodiscard]] NodeData& data(NodeId node) noexcept { return at(node).data; }
    [[nodiscard]] const NodeData& data(NodeId node) const noexcept { return at(node).data; }

    [[nodiscard]] NodeHandle handle(NodeId node) const noexcept {
        return {node, at(node).generation};
    }
    [[nodiscard]] bool is_alive(NodeHandle handle) const noexcept {
        const auto id = static_cast<std::uint32_t>(handle.node);
        return id != 0 && nodes_.has_storage(id) && handle.generation != 0 &&
               nodes_[id].generation == handle.generation;
    }

    /// Asks the processor for a node that will be looked at soon.
    void prefetch(NodeId node) const noexcept { detail::fetch_ahead(&at(node)); }
    /// The same for all that removing a leaf, or its tail, is going to touch; reads the node
    /// itself.
    void prefetch_removal(NodeId leaf) const noexcept {
        const Node& node = at(leaf);
        children_.prefetch(node.hash);
        detail::fetch_ahead(&links(leaf));
        detail::fetch_ahead(node.run);
        prefetch(node.parent);
        constexpr std::uint32_t step = sizeof(Value) < 64 ? 64 / sizeof(Value) : 1;
        if (node.values == nullptr) return;
        for (std::uint32_t i = 0; i < node.pages && i < 512; i += step) {
            detail::fetch_ahead(node.values + (node.pages - 1 - i));
        }
    }

    /// The next node of a depth-first walk of the subtree under `top`, `top` itself excluded;
    /// no_node at its end. Parents come before children. Needs no stack: start with `next_in(top,
    /// top)`.
    [[nodiscard]] NodeId next_in(NodeId top, NodeId node) const noexcept {
        if (at(node).first_child != no_node) return at(node).first_child;
        return next_after(top, node);
    }
    /// The same walk, going on past everything below `node`.
    [[nodiscard]] NodeId next_after(NodeId top, NodeId node) const noexcept {
        while (node != top && links(node).next == no_node) node = at(node).parent;
        return node == top ? no_node : links(node).next;
    }

    // --- Changing --------------------------------------------------------------------------------

    /// A new, empty tree beside the others. All roots share nodes, runs and table.
    [[nodiscard]] NodeId add_root() {
        const NodeId root{nodes_.take()};
        at(root) = {.generation = next_generation()};
        links(root) = {};
        return root;
    }
    /// Requires: a root without children.
    void remove_root(NodeId root) noexcept {
        KVSTEM_ASSERT(is_root(root) && at(root).child_count == 0);
        discard(root);
    }

    /// Adds a child under `parent`: a run of its own with a copy of `tokens` (a whole number of
    /// pages, at least one) and one value a page. The new child becomes the first one.
    /// Requires: no child of `parent` has the same first page. Throws std::bad_alloc;
    /// InvalidArgument for anything but whole pages with a value each, for 2^32 − 1 pages or more,
    /// and for a run whose bytes overflow.
    NodeId insert(NodeId parent, std::span<const T> tokens, std::span<const Value> values);

    /// Cuts a node in two after its first `keep` pages (0 < keep < pages). The lower part keeps the
    /// id, its data, its handle and its children; the returned upper part is new, takes the place
    /// among the siblings, and starts with a copy of the data. No token is copied.
    ///
    ///     parent ── [1 2 3 4 5 6] id 7          parent ── [1 2] id 9 ── [3 4 5 6] id 7
    NodeId split(NodeId id, std::uint32_t keep);

    /// Undoes a split: a parent with this one child, both slices of one run. The lower id stays,
    /// and the upper one is gone. False (nothing changed) if the two are not of that kind.
    bool join_with_parent(NodeId id) noexcept;

    /// Removes the last pages of a leaf, down to `keep` > 0 pages.
    void trim(NodeId leaf, std::uint32_t keep) noexcept {
        Node& node = at(leaf);
        KVSTEM_ASSERT(node.child_count == 0 && keep > 0 && keep <= node.pages);
        Run* run = node.run;
        const std::uint32_t cut = node.pages - keep;
        node.pages = keep;
        pages_ -= cut;
        runs_.shrink(run, run->live_pages - cut);
    }

    /// Removes a leaf that is not a root.
    void remove_leaf(NodeId leaf) noexcept;

    /// Makes a child the first of its parent: the order in which children are tried and enumerated.
    void move_to_front(NodeId node) noexcept {
        const NodeId parent = at(node).parent;
        if (parent == no_node || at(parent).first_child == node) return;
        unlink(node);
        link_in_front(parent, node);
    }

    /// Puts a child directly behind one of its siblings.
    void move_behind(NodeId node, NodeId sibling) noexcept {
        unlink(node);
        const NodeId next = links(sibling).next;
        links(node) = {sibling, next};
        links(sibling).next = node;
        if (next != no_node) links(next).previous = node;
    }

    /// Moves runs together where too much of their storage is dead. Call it once after a batch of
    /// changes. Over time its work is a constant factor of what they add and remove; one call may
    /// spend what calls before it have saved up, about a megabyte of moves or
    /// one longer run.
    void tidy() noexcept {
        runs_.clean([this](Run* old, Run* now) noexcept { relocate(old, now); });
    }

    // --- Sizes -----------------------------------------------------------------------------------

    /// Nodes, roots included.
    [[nodiscard]] std::size_t node_count() const noexcept { return nodes_.live(); }
    [[nodiscard]] std::uint64_t page_count() const noexcept { return pages_; }
    /// All memory of the index: nodes, table, tokens and values.
    [[nodiscard]] std::size_t bytes() const noexcept {
        return nodes_.bytes() + children_.bytes() + runs_.held_bytes();
    }

    /// Checks every invariant from raw state and adds what does not hold, by node. O(everything).
    void audit(AuditReport& report) const;

  private:
    using Runs = detail::RunStore<T, Value>;
    using Run = typename Runs::Run;

    struct Node {
        NodeId parent = no_node;
        std::uint32_t pages = 0;
        std::uint32_t hash = 0;  // of the first page, under which the child table files this node
        std::uint32_t child_count = 0;
        NodeId first_child = no_node;
        std::uint32_t first_child_key = 0;  // page_key of it: refutes most wrong guesses untouched
        std::uint32_t generation = 0;       // 0: the slot is free
        NodeData data{};
        const T* tokens = nullptr;
        const Value* values = nullptr;
        Run* run = nullptr;
    };
    struct Links {
        NodeId previous = no_node;
        NodeId next = no_node;
    };

    Node& at(NodeId node) noexcept { return nodes_[static_cast<std::uint32_t>(node)]; }
    const Node& at(NodeId node) const noexcept { return nodes_[static_cast<std::uint32_t>(node)]; }
    Links& links(NodeId node) noexcept { return nodes_.cold(static_cast<std::uint32_t>(node)); }
    const Links& links(NodeId node) const noexcept {
        return nodes_.cold(static_cast<std::uint32_t>(node));
    }

    std::uint32_t next_generation() noexcept {
        if (++generation_ == 0) generation_ = 1;
        return generation_;
    }
    std::uint32_t hash_under(NodeId parent, const T* page) const noexcept {
        return detail::page_hash(static_cast<std::uint32_t>(parent), page, page_tokens_);
    }

    /// Leading whole pages that `node` shares with `tokens`.
    std::uint32_t common_pages(const Node& node, std::span<const T> tokens) const noexcept {
        const std::size_t node_tokens = node.pages * page_tokens_;
        const std::size_t n = node_tokens < tokens.size() ? node_tokens : tokens.size();
        const std::size_t common = detail::common_tokens(node.tokens, tokens.data(), n);
        // A division costs as much as comparing a page, and most edges match as a whole.
        if (common == node_tokens) return node.pages;
        return static_cast<std::uint32_t>(common / page_tokens_);
    }

    struct Step {
        NodeId node;
        std::uint32_t pages;
    };
    Step step_down(NodeId parent, std::span<const T> tokens) const noexcept;

    void link_in_front(NodeId parent, NodeId node) noexcept {
        Node& above = at(parent);
        links(node) = {no_node, above.first_child};
        if (above.first_child != no_node) links(above.first_child).previous = node;
        above.first_child = node;
        above.first_child_key = detail::page_key(at(node).tokens, page_tokens_);
    }
    void unlink(NodeId node) noexcept {
        const Links around = links(node);
        if (around.next != no_node) links(around.next).previous = around.previous;
        if (around.previous != no_node) {
            links(around.previous).next = around.next;
            return;
        }
        Node& above = at(at(node).parent);
        above.first_child = around.next;
        if (around.next != no_node) {
            above.first_child_key = detail::page_key(at(around.next).tokens, page_tokens_);
        }
    }
    /// Puts `now` where `old` stands among its siblings.
    void relink(NodeId old, NodeId now) noexcept {
        const Links around = links(old);
        links(now) = around;
        if (around.next != no_node) links(around.next).previous = now;
        if (around.previous != no_node) {
            links(around.previous).next = now;
        } else {
            at(at(now).parent).first_child = now;  // the first page and so the key are the same
        }
    }

    void discard(NodeId node) noexcept {
        at(node) = {};
        nodes_.give(static_cast<std::uint32_t>(node));
    }

    /// A run has moved: its slices, a chain of ancestors that begins at its deepest node, follow
    /// it.
    void relocate(Run* old, Run* now) noexcept {
        const T* const old_tokens = old->tokens();
        const Value* const old_values = runs_.values(old);
        for (NodeId id{now->deepest_node}; at(id).run == old; id = at(id).parent) {
            Node& node = at(id);
            node.tokens = now->tokens() + (node.tokens - old_tokens);
            node.values = runs_.values(now) + (node.values - old_values);
            node.run = now;
            children_.set_clue(node.hash, static_cast<std::uint32_t>(id),
                               runs_.clue_of(now, node.tokens));
        }
    }

    const char* audit_node(NodeId id, std::uint64_t& pages, std::size_t& children) const;

    std::size_t page_tokens_;
    detail::NodePool<Node, Links> nodes_;
    detail::ChildTable children_;
    Runs runs_;
    std::uint64_t pages_ = 0;
    std::uint32_t generation_ = 0;
};

// --- Finding -------------------------------------------------------------------------------------

template <token_type T, class Value, class NodeData>
auto RadixTree<T, Value, NodeData>::step_down(NodeId parent,
                                              std::span<const T> tokens) const noexcept -> Step {
    const Node& above = at(parent);
    if (above.child_count == 0) return {no_node, 0};
    // The child that was followed last is tried before anything is hashed. Another key is proof
    // that it is not the one, and if it is the only child, that there is none.
    if (above.first_child_key == detail::page_key(tokens.data(), page_tokens_)) {
        const Node& child = at(above.first_child);
        // Long paths are bound by waiting for one node after the other: ask for the next one now.
        if (child.first_child != no_node) detail::fetch_ahead(&at(child.first_child));
        const std::uint32_t common = common_pages(child, tokens);
        if (common != 0) return {above.first_child, common};
    }
    if (above.child_count == 1) return {no_node, 0};
    std::uint32_t common = 0;
    const std::uint32_t found = children_.find(
        hash_under(parent, tokens.data()),
        [&](std::uint32_t candidate) noexcept {
            const Node& node = nodes_[candidate];
            if (node.parent != parent) return false;
            // Most likely it is the one. Then the next step looks for what follows its tokens: ask
            // for that slot while the tokens of this one are still on their way.
            const std::size_t node_tokens = node.pages * page_tokens_;
            if (node.child_count > 1 && tokens.size() - node_tokens >= page_tokens_ &&
                tokens.size() > node_tokens) {
                children_.prefetch(hash_under(NodeId{candidate}, tokens.data() + node_tokens));
            }
            return (common = common_pages(node, tokens)) != 0;
        },
        [&](std::uint32_t clue) noexcept { runs_.foresee(clue); });
    return {NodeId{found}, common};
}

template <token_type T, class Value, class NodeData>
template <class Visit>
TreeMatch RadixTree<T, Value, NodeData>::find(NodeId root, std::span<const T> tokens,
                                              Visit&& visit) const {
    TreeMatch match{root, at(root).pages, 0};
    while (tokens.size() >= page_tokens_) {
        const Step step = step_down(match.node, tokens);
        if (step.pages == 0) break;
        visit(step.node);
        match.node = step.node;
        match.node_pages = step.pages;
        match.pages += step.pages;
        if (step.pages < at(step.node).pages) break;
        tokens = tokens.subspan(step.pages * page_tokens_);
    }
    return match;
}

template <token_type T, class Value, class NodeData>
auto RadixTree<T, Value, NodeData>::find_partial(const TreeMatch& match,
                                                 std::span<const T> tokens) const noexcept
    -> PartialPage {
    const std::size_t n = tokens.size() < page_tokens_ ? tokens.size() : page_tokens_;
    PartialPage best;
    const auto consider = [&](NodeId node, std::uint32_t page) noexcept {
        const T* there = at(node).tokens + page * page_tokens_;
        const std::size_t common = detail::common_tokens(there, tokens.data(), n);
        if (common > best.tokens) best = {node, page, common};
    };
    if (match.node_pages < at(match.node).pages) {
        consider(match.node, match.node_pages);
        return best;
    }
    for (NodeId child = at(match.node).first_child; child != no_node; child = links(child).next) {
        consider(child, 0);
    }
    return best;
}

// --- Changing ------------------------------------------------------------------------------------

template <token_type T, class Value, class NodeData>
NodeId RadixTree<T, Value, NodeData>::insert(NodeId parent, std::span<const T> tokens,
                                             std::span<const Value> values) {
    const std::uint64_t new_pages = tokens.size() / page_tokens_;
    if (!runs_.fits(new_pages)) {
        detail::fail<InvalidArgument>("a run of %zu tokens is too long for one node",
                                      tokens.size());
    }
    const auto count = static_cast<std::uint32_t>(new_pages);
    if (count == 0 || tokens.size() != count * page_tokens_) {
        detail::fail<InvalidArgument>("%zu tokens are not a whole number of pages of %zu",
                                      tokens.size(), page_tokens_);
    }
    if (!std::is_empty_v<Value> && values.size() != count) {
        detail::fail<InvalidArgument>("%zu values for %u pages", values.size(), count);
    }
    // Everything that can fail comes first; a node id taken for nothing is given back.
    children_.reserve_one();
    const NodeId id{nodes_.take()};
#if defined(__cpp_exceptions)
    Run* run = nullptr;
    try {
        run = runs_.allocate(count);
    } catch (...) {
        nodes_.give(static_cast<std::uint32_t>(id));
        throw;
    }
#else
    Run* run = runs_.allocate(count);
#endif
    run->deepest_node = static_cast<std::uint32_t>(id);
    std::memcpy(static_cast<void*>(run->tokens()), tokens.data(), tokens.size_bytes());
    if constexpr (!std::is_empty_v<Value>) {
        std::memcpy(static_cast<void*>(runs_.values(run)), values.data(), values.size_bytes());
    }
    Node& node = at(id);
    node = {.parent = parent,
            .pages = count,
            .hash = hash_under(parent, run->tokens()),
            .generation = next_generation(),
            .tokens = run->tokens(),
            .values = runs_.values(run),
            .run = run};
    children_.insert(node.hash, static_cast<std::uint32_t>(id), runs_.clue_of(run, node.tokens));
    link_in_front(parent, id);
    ++at(parent).child_count;
    pages_ += count;
    return id;
}

template <token_type T, class Value, class NodeData>
NodeId RadixTree<T, Value, NodeData>::split(NodeId id, std::uint32_t keep) {
    KVSTEM_ASSERT(keep > 0 && keep < at(id).pages);
    children_.reserve_one();
    const NodeId upper_id{nodes_.take()};
    Node& lower = at(id);
    Node& upper = at(upper_id);
    upper = lower;
    upper.pages = keep;
    upper.generation = next_generation();
    upper.child_count = 1;
    upper.first_child = id;
    relink(id, upper_id);
    children_.replace(lower.hash, static_cast<std::uint32_t>(id),
                      static_cast<std::uint32_t>(upper_id));
    lower.parent = upper_id;
    lower.pages -= keep;
    lower.tokens += keep * page_tokens_;
    lower.values += keep;
    lower.hash = hash_under(upper_id, lower.tokens);
    upper.first_child_key = detail::page_key(lower.tokens, page_tokens_);
    links(id) = {};
    children_.insert(lower.hash, static_cast<std::uint32_t>(id),
                     runs_.clue_of(lower.run, lower.tokens));
    return upper_id;
}

template <token_type T, class Value, class NodeData>
bool RadixTree<T, Value, NodeData>::join_with_parent(NodeId id) noexcept {
    const NodeId upper_id = at(id).parent;
    if (upper_id == no_node) return false;
    Node& lower = at(id);
    const Node upper = at(upper_id);
    if (upper.run != lower.run || upper.child_count != 1) return false;
    children_.erase(lower.hash, static_cast<std::uint32_t>(id));
    children_.replace(upper.hash, static_cast<std::uint32_t>(upper_id),
                      static_cast<std::uint32_t>(id));
    lower.parent = upper.parent;
    lower.hash = upper.hash;
    lower.pages += upper.pages;
    lower.tokens = upper.tokens;
    lower.values = upper.values;
    relink(upper_id, id);
    discard(upper_id);
    return true;
}

template <token_type T, class Value, class NodeData>
void RadixTree<T, Value, NodeData>::remove_leaf(NodeId leaf) noexcept {
    const Node node = at(leaf);
    KVSTEM_ASSERT(node.child_count == 0 && node.parent != no_node);
    children_.erase(node.hash, static_cast<std::uint32_t>(leaf));
    unlink(leaf);
    --at(node.parent).child_count;
    node.run->deepest_node = static_cast<std::uint32_t>(node.parent);
    runs_.shrink(node.run, node.run->live_pages - node.pages);
    pages_ -= node.pages;
    discard(leaf);
}

// --- Auditing ------------------------------------------------------------------------------------

template <token_type T, class Value, class NodeData>
void RadixTree<T, Value, NodeData>::audit(AuditReport& report) const {
    std::uint64_t pages = 0;
    std::size_t live = 0;
    std::size_t children = 0;
    for (std::uint32_t i = 1; i < nodes_.end_id(); ++i) {
        if (!nodes_.has_storage(i) || nodes_[i].generation == 0) continue;
        ++live;
        if (const char* finding = audit_node(NodeId{i}, pages, children)) report.add(finding, i);
    }
    report.require(live == nodes_.live(), "tree: the node count is not the number of nodes", live);
    report.require(pages == pages_, "tree: the page count is not the sum over the nodes", pages);
    report.require(children == children_.size(),
                   "tree: the child table has an entry too many or too few", children);
}

template <token_type T, class Value, class NodeData>
const char* RadixTree<T, Value, NodeData>::audit_node(NodeId id, std::uint64_t& pages,
                                                      std::size_t& children) const {
    const Node& node = at(id);
    std::uint32_t listed = 0;
    bool last_slice = true;  // no child is a slice of the same run
    NodeId previous = no_node;
    for (NodeId child = node.first_child; child != no_node; child = links(child).next) {
        if (at(child).parent != id) return "tree: a child does not know its parent";
        if (links(child).previous != previous) return "tree: a sibling link points one way only";
        if (++listed > node.child_count) break;
        if (at(child).run == node.run) last_slice = false;
        previous = child;
    }
    if (listed != node.child_count) return "tree: the child count is not the number of children";
    if (node.parent == no_node) return node.pages == 0 ? nullptr : "tree: a root has tokens";
    ++children;
    pages += node.pages;
    if (node.pages == 0) return "tree: a node without pages";
    if (node.first_child != no_node &&
        node.first_child_key != detail::page_key(at(node.first_child).tokens, page_tokens_)) {
        return "tree: the key of the first child is not that of its first page";
    }
    if (node.hash != hash_under(node.parent, node.tokens))
        return "tree: a node is filed under a wrong hash";
    if (step_down(node.parent, tokens(id)).node != id)
        return "tree: a node is not found under its parent";
    const Node& above = at(node.parent);
    const bool continues = above.run == node.run;
    const std::size_t offset = static_cast<std::size_t>(node.tokens - node.run->tokens());
    if (continues ? node.tokens != above.tokens + above.pages * page_tokens_ : offset != 0) {
        return "tree: a slice does not begin where the one before it ends";
    }
    if constexpr (!std::is_empty_v<Value>) {
        if (node.values != runs_.values(node.run) + offset / page_tokens_) {
            return "tree: the values of a node are not those of its tokens";
        }
    }
    if ((node.run->deepest_node == static_cast<std::uint32_t>(id)) != last_slice) {
        return "tree: a run does not know its last slice";
    }
    if (last_slice && node.run->live_pages != offset / page_tokens_ + node.pages) {
        return "tree: a run is not alive exactly as far as its nodes reach";
    }
    return nullptr;
}

}  // namespace kvstem
