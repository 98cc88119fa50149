// SPDX-License-Identifier: MIT
// RadixTree: finding, cutting, joining and dropping paths, for pages of 1, 2, 4 and 16 tokens.

#include "kvstem/radix_tree.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "support/counting_kv.hpp"
#include "support/fail_allocation.hpp"

using kvstem::no_node;
using kvstem::NodeHandle;
using kvstem::NodeId;
using kvstem::NoValue;
using kvstem::PageId;
using kvstem::RadixTree;
using kvstem::Token;
using kvstem::TreeMatch;
using namespace kvstem_test;

namespace {

struct Mark {
    std::uint32_t number = 0;
};
using Tree = RadixTree<Token, PageId, Mark>;

std::vector<PageId> pages_from(std::uint32_t first, std::size_t n) {
    std::vector<PageId> pages;
    for (std::uint32_t i = 0; i < n; ++i) pages.push_back(PageId{first + i});
    return pages;
}

/// `n` pages of P tokens whose tokens are first, first + 1, …
Tokens paged(const Tree& tree, std::size_t n, Token first) {
    return counted(n * tree.page_tokens(), first);
}

NodeId add(Tree& tree, NodeId parent, const Tokens& tokens, std::uint32_t first_page = 0) {
    return tree.insert(parent, tokens, pages_from(first_page, tokens.size() / tree.page_tokens()));
}

template <class AnyTree>
void check_audit(const AnyTree& tree) {
    kvstem::AuditReport report;
    tree.audit(report);
    INFO((report.ok() ? "" : report.findings.front().what));
    CHECK(report.ok());
}

template <class AnyTree>
std::vector<NodeId> children(const AnyTree& tree, NodeId parent) {
    std::vector<NodeId> ids;
    for (NodeId c = tree.first_child(parent); c != no_node; c = tree.next_sibling(c)) {
        ids.push_back(c);
    }
    return ids;
}

template <class AnyTree>
std::vector<NodeId> below(const AnyTree& tree, NodeId top) {
    std::vector<NodeId> ids;
    for (NodeId n = tree.next_in(top, top); n != no_node; n = tree.next_in(top, n))
        ids.push_back(n);
    return ids;
}

Tokens copy_of(std::span<const Token> tokens) {
    return {tokens.begin(), tokens.end()};
}

std::vector<PageId> copy_of(std::span<const PageId> pages) {
    return {pages.begin(), pages.end()};
}

}  // namespace

TEST_CASE("a page size of 0 is refused, and so is one that cannot be addressed", "[R3]") {
    CHECK_THROWS_AS(Tree(0), kvstem::InvalidArgument);
    CHECK_THROWS_AS(Tree(SIZE_MAX), kvstem::InvalidArgument);
    CHECK_THROWS_AS(Tree(SIZE_MAX / 4), kvstem::InvalidArgument);
}

TEST_CASE("an empty tree matches nothing", "[M6]") {
    Tree tree(4);
    const NodeId root = tree.add_root();
    const TreeMatch match = tree.find(root, counted(9));
    CHECK(match.node == root);
    CHECK(match.pages == 0);
    CHECK(match.node_pages == 0);
    CHECK(tree.find(root, {}).pages == 0);
    CHECK(tree.is_root(root));
    CHECK(tree.node_count() == 1);
    CHECK(tree.page_count() == 0);
    check_audit(tree);
}

TEST_CASE("a match is the longest run of whole equal pages, for every length and page size",
          "[M1][M6][C09]") {
    const std::size_t p = GENERATE(1U, 2U, 4U, 16U);
    Tree tree(p);
    const NodeId root = tree.add_root();
    const Tokens all = paged(tree, 5, 100);
    const NodeId top = add(tree, root, Tokens(all.begin(), all.begin() + 2 * static_cast<int>(p)));
    const NodeId leaf = add(tree, top, Tokens(all.begin() + 2 * static_cast<int>(p), all.end()));
    for (std::size_t same = 0; same <= all.size(); ++same) {
        for (const std::size_t more : {std::size_t{0}, std::size_t{1}, p}) {
            Tokens prompt(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(same));
            prompt.insert(prompt.end(), more, -5);
            const TreeMatch match = tree.find(root, prompt);
            CAPTURE(p, same, more);
            const std::size_t pages = same / p;
            CHECK(match.pages == pages);
            CHECK(match.node == (pages == 0 ? root : pages <= 2 ? top : leaf));
            CHECK(match.node_pages == (pages <= 2 ? pages : pages - 2));
        }
    }
    CHECK(tree.node_count() == 3);
    CHECK(tree.page_count() == 5);
    check_audit(tree);
}

TEST_CASE("siblings are told apart by any token of their first page", "[M1]") {
    const std::size_t p = GENERATE(1U, 2U, 4U, 16U);
    Tree tree(p);
    const NodeId root = tree.add_root();
    const Tokens base = counted(p, 50);
    std::vector<std::pair<Tokens, NodeId>> inserted;
    for (std::size_t differs = 0; differs < p; ++differs) {
        for (Token value = 1; value <= 3; ++value) {
            Tokens page = base;
            page[differs] = -value;
            inserted.emplace_back(page, add(tree, root, page));
        }
    }
    CHECK(tree.child_count(root) == 3 * p);
    for (const auto& [tokens, node] : inserted) CHECK(tree.find(root, tokens).node == node);
    CHECK(tree.find(root, base).pages == 0);
    check_audit(tree);
}

TEST_CASE("a lone child is not mistaken for one that shares its key tokens", "[M1]") {
    Tree tree(4);
    const NodeId root = tree.add_root();
    add(tree, root, {1, 2, 3, 4});
    CHECK(tree.find(root, Tokens{1, 9, 9, 4}).pages == 0);
    add(tree, root, {1, 9, 9, 4});
    CHECK(tree.find(root, Tokens{1, 9, 9, 4}).pages == 1);
    CHECK(tree.find(root, Tokens{1, 2, 3, 4}).pages == 1);
    CHECK(tree.find(root, Tokens{1, 7, 7, 4}).pages == 0);
}

TEST_CASE("differences are found wherever they are in a long edge", "[M1]") {
    const std::size_t p = GENERATE(1U, 2U, 4U, 16U);
    Tree tree(p);
    const NodeId root = tree.add_root();
    const Tokens all = counted(20000 / p * p, 1);
    add(tree, root, all);
    for (std::size_t at = 0; at < all.size(); at += 1 + at / 7) {
        for (const Token flip : {Token{1}, Token{1} << 30}) {
            Tokens prompt = all;
            prompt[at] ^= flip;
            REQUIRE(tree.find(root, prompt).pages == at / p);
        }
    }
    CHECK(tree.find(root, all).pages == all.size() / p);
}

TEST_CASE("a partial page says how many of its tokens agree, inside a node and at its end",
          "[M8]") {
    Tree tree(4);
    const NodeId root = tree.add_root();
    const NodeId top = add(tree, root, {1, 2, 3, 4, 5, 6, 7, 8});
    const NodeId a = add(tree, top, {9, 9, 1, 1});
    const NodeId b = add(tree, top, {9, 9, 9, 2});
    const auto partial = [&](const Tokens& prompt) {
        const TreeMatch match = tree.find(root, prompt);
        return tree.find_partial(
            match, std::span(prompt).subspan(static_cast<std::size_t>(match.pages) * 4));
    };
    const auto inside = partial({1, 2, 3, 4, 5, 6, 0, 8});
    CHECK(inside.node == top);
    CHECK(inside.page == 1);
    CHECK(inside.tokens == 2);
    const auto first = partial({1, 2, 0, 0});
    CHECK(first.node == top);
    CHECK(first.page == 0);
    CHECK(first.tokens == 2);
    const auto at_end = partial({1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 0});
    CHECK(at_end.node == b);
    CHECK(at_end.page == 0);
    CHECK(at_end.tokens == 3);
    const auto short_rest = partial({1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 1});
    CHECK(short_rest.node == a);
    CHECK(short_rest.tokens == 3);
    CHECK(partial({1, 2, 3, 4, 5, 6, 7, 8, 7}).tokens == 0);
    CHECK(partial({1, 2, 3, 4, 5, 6, 7, 8}).tokens == 0);
    CHECK(partial({}).tokens == 0);
    CHECK(partial({1, 2, 3, 4, 5, 6, 7, 8, 7}).node == no_node);
}

TEST_CASE("a split copies no token: both parts look into the same run", "[M1]") {
    const std::size_t p = GENERATE(1U, 2U, 4U, 16U);
    Tree tree(p);
    const NodeId root = tree.add_root();
    const Tokens all = paged(tree, 6, 0);
    const NodeId id = add(tree, root, all, 70);
    const NodeId child = add(tree, id, paged(tree, 1, 900));
    tree.data(id).number = 5;
    const NodeHandle handle = tree.handle(id);
    const Token* const tokens = tree.tokens(id).data();
    const PageId* const values = tree.values(id).data();
    const std::size_t bytes = tree.bytes();

    const NodeId upper = tree.split(id, 2);

    CHECK(tree.tokens(upper).data() == tokens);
    CHECK(tree.tokens(id).data() == tokens + 2 * p);
    CHECK(tree.values(upper).data() == values);
    CHECK(tree.values(id).data() == values + 2);
    CHECK(tree.pages(upper) == 2);
    CHECK(tree.pages(id) == 4);
    CHECK(tree.bytes() == bytes);
    CHECK(tree.page_count() == 7);
    // The lower part is the old node: its id, handle, data and children stay.
    CHECK(tree.is_alive(handle));
    CHECK(tree.data(id).number == 5);
    CHECK(tree.data(upper).number == 5);
    CHECK(tree.parent(id) == upper);
    CHECK(tree.parent(upper) == root);
    CHECK(children(tree, root) == std::vector<NodeId>{upper});
    CHECK(children(tree, upper) == std::vector<NodeId>{id});
    CHECK(children(tree, id) == std::vector<NodeId>{child});
    CHECK(tree.find(root, all).node == id);
    CHECK(tree.find(root, all).pages == 6);
    CHECK(copy_of(tree.values(id)) == pages_from(72, 4));
    check_audit(tree);
}

TEST_CASE("a split leaves the upper part at the place of the node among its siblings") {
    Tree tree(2);
    const NodeId root = tree.add_root();
    const NodeId last = add(tree, root, {1, 1, 1, 1});
    const NodeId middle = add(tree, root, {2, 2, 2, 2});
    const NodeId first = add(tree, root, {3, 3, 3, 3});
    CHECK(children(tree, root) == std::vector<NodeId>{first, middle, last});
    const NodeId upper_middle = tree.split(middle, 1);
    CHECK(children(tree, root) == std::vector<NodeId>{first, upper_middle, last});
    const NodeId upper_first = tree.split(first, 1);
    const NodeId upper_last = tree.split(last, 1);
    CHECK(children(tree, root) == std::vector<NodeId>{upper_first, upper_middle, upper_last});
    check_audit(tree);
}

TEST_CASE("joining undoes a split, wherever it was cut") {
    const std::size_t p = GENERATE(1U, 4U);
    Tree tree(p);
    const NodeId root = tree.add_root();
    const NodeId neighbour = add(tree, root, paged(tree, 2, 700));
    const Tokens all = paged(tree, 6, 0);
    const NodeId id = add(tree, root, all, 70);
    const NodeId child = add(tree, id, paged(tree, 1, 900));
    tree.move_to_front(neighbour);
    const NodeHandle handle = tree.handle(id);
    for (std::uint32_t keep = 1; keep < 6; ++keep) {
        const NodeId upper = tree.split(id, keep);
        const NodeHandle upper_handle = tree.handle(upper);
        CHECK(tree.join_with_parent(id));
        CHECK_FALSE(tree.is_alive(upper_handle));
        CHECK(tree.is_alive(handle));
        CHECK(copy_of(tree.tokens(id)) == all);
        CHECK(copy_of(tree.values(id)) == pages_from(70, 6));
        CHECK(children(tree, root) == std::vector<NodeId>{neighbour, id});
        CHECK(children(tree, id) == std::vector<NodeId>{child});
        CHECK(tree.node_count() == 4);
        check_audit(tree);
    }
}

TEST_CASE("anything but whole pages with a value each is refused, with nothing changed", "[R3]") {
    Tree tree(4);
    const NodeId root = tree.add_root();
    const auto insert = [&](std::size_t tokens, std::size_t values) {
        return [&tree, root, tokens, values] {
            (void)tree.insert(root, counted(tokens), pages_from(0, values));
        };
    };
    CHECK_THROWS_AS(insert(0, 0)(), kvstem::InvalidArgument);
    CHECK_THROWS_AS(insert(3, 0)(), kvstem::InvalidArgument);
    CHECK_THROWS_AS(insert(9, 2)(), kvstem::InvalidArgument);
    CHECK_THROWS_AS(insert(8, 1)(), kvstem::InvalidArgument);
    CHECK_THROWS_AS(insert(8, 3)(), kvstem::InvalidArgument);
    CHECK(tree.node_count() == 1);
    CHECK(tree.page_count() == 0);
    check_audit(tree);
    CHECK_NOTHROW(insert(8, 2)());
}

TEST_CASE("a handle stays dead when the id of its node is taken again", "[R3]") {
    Tree tree(1);
    const NodeId root = tree.add_root();
    const NodeId leaf = add(tree, root, counted(4));
    const NodeHandle old_leaf = tree.handle(leaf);
    tree.remove_leaf(leaf);
    const NodeId id = add(tree, root, counted(4));
    REQUIRE(id == leaf);
    CHECK_FALSE(tree.is_alive(old_leaf));

    const NodeId upper = tree.split(id, 2);
    const NodeHandle old_upper = tree.handle(upper);
    CHECK(tree.join_with_parent(id));
    REQUIRE(tree.split(id, 2) == upper);
    CHECK_FALSE(tree.is_alive(old_upper));
    CHECK(tree.is_alive(tree.handle(upper)));
    CHECK(tree.is_alive(tree.handle(id)));
}

TEST_CASE("a page whose fingerprints under two parents are equal is found under its own", "[M1]") {
    Tree tree(2);
    const NodeId root = tree.add_root();
    std::vector<NodeId> parents;
    for (Token i = 0; i < 8000; ++i) parents.push_back(add(tree, root, {1'000'000 + i, 0}));

    // Of so many parents two have one fingerprint for some of the first few hundred pages.
    const auto colliding = [&](Token token) -> std::pair<NodeId, NodeId> {
        const Tokens page{token, token};
        std::vector<std::pair<std::uint32_t, NodeId>> hashes;
        for (const NodeId parent : parents) {
            const auto id = static_cast<std::uint32_t>(parent);
            hashes.emplace_back(kvstem::detail::page_hash(id, page.data(), 2), parent);
        }
        std::sort(hashes.begin(), hashes.end());
        const auto same = [](const auto& a, const auto& b) { return a.first == b.first; };
        const auto found = std::adjacent_find(hashes.begin(), hashes.end(), same);
        if (found == hashes.end()) return {no_node, no_node};
        return {found->second, std::next(found)->second};
    };
    Token token = 0;
    while (colliding(token).first == no_node) REQUIRE(++token < 10'000);
    const auto [a, b] = colliding(token);

    const NodeId child = add(tree, a, {token, token});
    // Neither parent is done with its first child, so both look into the table.
    for (const NodeId parent : {a, b}) {
        add(tree, parent, {-1, 0});
        add(tree, parent, {-2, 0});
    }
    const Token first_of_a = tree.tokens(a)[0];
    const Token first_of_b = tree.tokens(b)[0];
    CHECK(tree.find(root, Tokens{first_of_a, 0, token, token}).node == child);
    CHECK(tree.find(root, Tokens{first_of_b, 0, token, token}).node == b);
}

TEST_CASE("what is not the other half of a split is not joined") {
    Tree tree(1);
    const NodeId root = tree.add_root();
    const NodeId a = add(tree, root, {1, 2, 3, 4});
    const NodeId b = add(tree, a, {5, 6});
    CHECK_FALSE(tree.join_with_parent(root));
    CHECK_FALSE(tree.join_with_parent(a));  // its parent is the root
    CHECK_FALSE(tree.join_with_parent(b));  // a run of its own
    const NodeId upper = tree.split(a, 2);
    const NodeId branch = add(tree, upper, {9});
    CHECK_FALSE(tree.join_with_parent(a));  // the upper part branches
    CHECK_FALSE(tree.join_with_parent(branch));
    tree.remove_leaf(branch);
    CHECK(tree.join_with_parent(a));
    CHECK(tree.node_count() == 3);
    check_audit(tree);
}

TEST_CASE("trimming a leaf drops its last pages and nothing else") {
    const std::size_t p = GENERATE(1U, 2U, 4U, 16U);
    Tree tree(p);
    const NodeId root = tree.add_root();
    const Tokens all = paged(tree, 6, 0);
    const NodeId id = add(tree, root, all, 70);
    const NodeHandle handle = tree.handle(id);
    tree.trim(id, 6);
    CHECK(tree.page_count() == 6);
    tree.trim(id, 4);
    CHECK(tree.page_count() == 4);
    CHECK(tree.find(root, all).pages == 4);
    CHECK(copy_of(tree.values(id)) == pages_from(70, 4));
    check_audit(tree);
    const NodeId upper = tree.split(id, 3);
    tree.trim(id, 1);
    check_audit(tree);
    tree.remove_leaf(id);
    CHECK_FALSE(tree.is_alive(handle));
    CHECK(tree.find(root, all).node == upper);
    tree.trim(upper, 1);
    CHECK(tree.find(root, all).pages == 1);
    check_audit(tree);
    // The place behind a trimmed leaf can be filled again with the same tokens, in a run of their
    // own.
    const NodeId again =
        add(tree, upper, Tokens(all.begin() + static_cast<int>(p), all.end()), 500);
    CHECK(tree.find(root, all).pages == 6);
    CHECK_FALSE(tree.join_with_parent(again));
    CHECK(tree.page_count() == 6);
    check_audit(tree);
}

TEST_CASE("removing a leaf leaves its siblings findable, whichever it is") {
    const std::size_t victim = GENERATE(0U, 1U, 2U, 3U);
    Tree tree(2);
    const NodeId root = tree.add_root();
    std::vector<Tokens> tokens{{1, 1}, {2, 2}, {3, 3}, {4, 4}};
    std::vector<NodeId> ids;
    for (const auto& t : tokens) ids.push_back(add(tree, root, t));
    tree.remove_leaf(ids[victim]);
    CHECK(tree.child_count(root) == 3);
    for (std::size_t i = 0; i < 4; ++i) {
        CHECK(tree.find(root, tokens[i]).pages == (i == victim ? 0 : 1));
    }
    check_audit(tree);
    for (std::size_t i = 0; i < 4; ++i) {
        if (i != victim) tree.remove_leaf(ids[i]);
        check_audit(tree);
    }
    CHECK(tree.page_count() == 0);
    CHECK(tree.node_count() == 1);
    CHECK(tree.first_child(root) == no_node);
}

TEST_CASE("a handle notices that its node is gone, also when the id is used again") {
    Tree tree(1);
    CHECK_FALSE(tree.is_alive({}));
    CHECK_FALSE(tree.is_alive({NodeId{5}, 1}));
    CHECK_FALSE(tree.is_alive({NodeId{5'000'000}, 1}));
    const NodeId root = tree.add_root();
    std::vector<NodeHandle> old;
    for (Token i = 0; i < 50; ++i) {
        const NodeId id = add(tree, root, {i, i});
        CHECK(tree.is_alive(tree.handle(id)));
        CHECK_FALSE(tree.is_alive({id, 0}));
        old.push_back(tree.handle(id));
        tree.remove_leaf(id);
        for (const NodeHandle& handle : old) REQUIRE_FALSE(tree.is_alive(handle));
    }
    CHECK(old.front().node == old.back().node);  // otherwise this tests nothing
    const NodeId other = tree.add_root();
    const NodeHandle handle = tree.handle(other);
    tree.remove_root(other);
    CHECK_FALSE(tree.is_alive(handle));
    CHECK(tree.is_alive(tree.handle(root)));
}

TEST_CASE("siblings stand in the order they are put in") {
    Tree tree(1);
    const NodeId root = tree.add_root();
    const NodeId a = add(tree, root, {1});
    const NodeId b = add(tree, root, {2});
    const NodeId c = add(tree, root, {3});
    const NodeId d = add(tree, root, {4});
    using Order = std::vector<NodeId>;
    CHECK(children(tree, root) == Order{d, c, b, a});
    tree.move_to_front(b);
    CHECK(children(tree, root) == Order{b, d, c, a});
    tree.move_to_front(b);
    CHECK(children(tree, root) == Order{b, d, c, a});
    tree.move_to_front(a);
    CHECK(children(tree, root) == Order{a, b, d, c});
    tree.move_behind(a, c);
    CHECK(children(tree, root) == Order{b, d, c, a});
    tree.move_behind(b, d);
    CHECK(children(tree, root) == Order{d, b, c, a});
    tree.move_behind(a, d);
    CHECK(children(tree, root) == Order{d, a, b, c});
    tree.move_to_front(root);  // has no siblings
    check_audit(tree);
    for (Token t = 1; t <= 4; ++t) CHECK(tree.find(root, Tokens{t}).pages == 1);
}

TEST_CASE("a walk visits every node of a subtree once, parents first, and nothing beside it") {
    Tree tree(1);
    const NodeId root = tree.add_root();
    const NodeId a = add(tree, root, {1});
    const NodeId a1 = add(tree, a, {1});
    const NodeId a2 = add(tree, a, {2});
    const NodeId a21 = add(tree, a2, {1});
    const NodeId b = add(tree, root, {2});
    using Order = std::vector<NodeId>;
    CHECK(below(tree, root) == Order{b, a, a2, a21, a1});
    CHECK(below(tree, a) == Order{a2, a21, a1});
    CHECK(below(tree, b).empty());
    CHECK(tree.next_after(root, a2) == a1);
    CHECK(tree.next_after(a, a2) == a1);
    CHECK(tree.next_after(a2, a21) == no_node);
    CHECK(tree.next_after(root, b) == a);
    CHECK(tree.next_after(root, a) == no_node);
    CHECK(tree.next_after(root, root) == no_node);
}

TEST_CASE("roots are trees of their own over the same storage", "[M7]") {
    Tree tree(1);
    const NodeId one = tree.add_root();
    const NodeId two = tree.add_root();
    const NodeId in_one = add(tree, one, {1, 2, 3});
    CHECK(tree.find(two, Tokens{1, 2, 3}).pages == 0);
    const NodeId in_two = add(tree, two, {1, 2, 3, 4});
    add(tree, one, {5});
    add(tree, two, {6});
    CHECK(tree.find(one, Tokens{1, 2, 3, 4}).node == in_one);
    CHECK(tree.find(two, Tokens{1, 2, 3, 4}).node == in_two);
    CHECK(tree.find(one, Tokens{6}).pages == 0);
    CHECK(tree.find(two, Tokens{5}).pages == 0);
    tree.remove_leaf(in_two);
    CHECK(tree.find(one, Tokens{1, 2, 3}).pages == 3);
    check_audit(tree);
}

TEST_CASE("a long path is built, found, walked and taken apart without recursion", "[R3][C17]") {
    Tree tree(1);
    const NodeId root = tree.add_root();
    const Tokens all = counted(100'000);
    NodeId node = root;
    for (std::size_t i = 0; i < all.size(); ++i) {
        node = add(tree, node, {all[i]}, static_cast<std::uint32_t>(i));
    }
    CHECK(tree.find(root, all).pages == all.size());
    CHECK(below(tree, root).size() == all.size());
    check_audit(tree);
    while (!tree.is_root(node)) {
        const NodeId above = tree.parent(node);
        tree.remove_leaf(node);
        tree.tidy();
        node = above;
    }
    CHECK(tree.node_count() == 1);
}

// --- Memory --------------------------------------------------------------------------------------

TEST_CASE("memory follows the live tokens when a long insertion is cut down to its beginnings",
          "[C07]") {
    const std::size_t p = GENERATE(1U, 16U);
    Tree tree(p);
    const NodeId root = tree.add_root();
    const std::size_t n = 200'000 / p * p;
    const Tokens all = counted(n);
    const NodeId leaf = add(tree, root, all);
    const std::size_t peak = tree.bytes();
    // Divergent sequences cut it at 1,000 places; then it goes from its end, page by page, down to
    // a tenth of itself.
    const std::size_t step = n / p / 1000;
    std::vector<NodeId> branches;
    for (std::size_t i = 1; i < 1000; ++i) {
        const std::size_t keep = i * step;
        Tokens prompt(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(keep * p));
        prompt.insert(prompt.end(), p, -1);
        const TreeMatch match = tree.find(root, prompt);
        REQUIRE(match.pages == keep);
        const NodeId above = match.node_pages < tree.pages(match.node)
                                 ? tree.split(match.node, match.node_pages)
                                 : match.node;
        branches.push_back(add(tree, above, Tokens(p, -1)));
    }
    check_audit(tree);
    for (const NodeId branch : branches) tree.remove_leaf(branch);
    tree.tidy();
    NodeId node = leaf;
    while (tree.page_count() > n / p / 10) {
        const NodeId above = tree.parent(node);
        tree.remove_leaf(node);
        tree.tidy();
        node = above;
    }
    check_audit(tree);
    CHECK(tree.find(root, all).pages == tree.page_count());
    // Fixed parts: a segment of runs (256 KB) and one of nodes (about 80 KB).
    CHECK(tree.bytes() < peak / 10 + 400'000);
    CHECK(tree.bytes() < peak);
}

TEST_CASE("memory returns to the baseline while random sequences come and go under one root",
          "[C08]") {
    Tree tree(4);
    const NodeId root = tree.add_root();
    const NodeId shared = add(tree, root, paged(tree, 8, 0));
    std::mt19937 random(1);
    std::size_t baseline = 0;
    std::size_t highest = 0;
    for (int round = 0; round < 20000; ++round) {
        Tokens tokens(4 * (1 + random() % 40));
        for (Token& t : tokens) t = static_cast<Token>(random() >> 1);
        const NodeId leaf = add(tree, shared, tokens);
        if (round % 3 == 0 && tree.pages(leaf) > 1) {
            const NodeId upper = tree.split(leaf, 1);
            tree.remove_leaf(leaf);
            tree.remove_leaf(upper);
        } else {
            tree.remove_leaf(leaf);
        }
        tree.tidy();
        if (round == 100) baseline = tree.bytes();
        if (tree.bytes() > highest) highest = tree.bytes();
    }
    CHECK(tree.node_count() == 2);
    CHECK(tree.page_count() == 8);
    CHECK(tree.bytes() <= baseline);
    CHECK(highest <= baseline + 1024 * 1024);
    check_audit(tree);
}

TEST_CASE("after a peak of many nodes the index gives its memory back", "[C08]") {
    Tree tree(2);
    const NodeId root = tree.add_root();
    std::vector<NodeId> leaves;
    std::mt19937 random(2);
    for (Token i = 0; i < 60'000; ++i) leaves.push_back(add(tree, root, {i, i, i, i}));
    const std::size_t peak = tree.bytes();
    CHECK(peak > 4'000'000);
    for (const NodeId leaf : leaves) {
        tree.remove_leaf(leaf);
        tree.tidy();
    }
    CHECK(tree.node_count() == 1);
    CHECK(tree.bytes() < 450'000);
    check_audit(tree);
}

TEST_CASE("tidy moves runs and every slice of them follows") {
    const std::size_t p = GENERATE(1U, 4U);
    Tree tree(p);
    const NodeId root = tree.add_root();
    struct Kept {
        Tokens tokens;
        NodeId upper;
        NodeId lower;
        const Token* place;
    };
    std::vector<Kept> kept;
    std::vector<NodeId> dropped;
    for (Token i = 0; i < 600; ++i) {
        const Tokens tokens = paged(tree, 1600 / p, i * 10'000);
        const NodeId id = add(tree, root, tokens, static_cast<std::uint32_t>(i) * 5000);
        if (i % 10 == 0) {
            const NodeId upper = tree.split(id, 3);
            kept.push_back({tokens, upper, id, tree.tokens(upper).data()});
        } else {
            dropped.push_back(id);
        }
    }
    for (const NodeId id : dropped) {
        tree.remove_leaf(id);
        tree.tidy();
    }
    for (int i = 0; i < 100; ++i) tree.tidy();
    check_audit(tree);
    std::size_t moved = 0;
    for (const Kept& k : kept) {
        const Token* const place = tree.tokens(k.upper).data();
        moved += place != k.place ? 1U : 0U;
        CHECK(tree.tokens(k.lower).data() == place + 3 * p);
        CHECK(tree.find(root, k.tokens).pages == k.tokens.size() / p);
        CHECK(tree.values(k.lower).data() == tree.values(k.upper).data() + 3);
        CHECK(tree.values(k.lower)[0] == PageId{static_cast<std::uint32_t>(k.tokens[0]) / 2 + 3});
    }
    CHECK(moved > kept.size() / 2);
    const std::size_t content = kept.size() * (1600 * sizeof(Token) + 1600 / p * sizeof(PageId));
    CHECK(tree.bytes() < content * 3 / 2 + 600'000);
}

TEST_CASE("an insertion or a split that finds no memory has changed nothing", "[R1]") {
    Tree tree(2);
    const NodeId root = tree.add_root();
    std::mt19937 random(4);
    std::size_t fired = 0;
    std::size_t failed_splits = 0;
    std::vector<Tokens> inserted;
    for (Token i = 0; i < 1500; ++i) {
        const Tokens tokens = paged(tree, 2 + random() % 200, i * 1000);
        const auto pages = pages_from(0, tokens.size() / 2);
        for (std::size_t n = 1; n < 8; ++n) {
            const std::size_t nodes = tree.node_count();
            NodeId id = no_node;
            const auto outcome =
                with_failing_allocation(n, [&] { id = tree.insert(root, tokens, pages); });
            REQUIRE(outcome.threw == outcome.fired);
            if (!outcome.fired) {
                tree.remove_leaf(id);
                break;
            }
            ++fired;
            REQUIRE(tree.node_count() == nodes);
            REQUIRE(tree.find(root, tokens).pages == 0);
        }
        const NodeId id = tree.insert(root, tokens, pages);
        inserted.push_back(tokens);
        const auto outcome = with_failing_allocation(1, [&] { (void)tree.split(id, 1); });
        REQUIRE(outcome.threw == outcome.fired);
        REQUIRE(tree.pages(id) == (outcome.fired ? pages.size() : pages.size() - 1));
        failed_splits += outcome.fired ? 1 : 0;
    }
    CHECK(failed_splits > 0);
    CHECK(fired > 10);
    check_audit(tree);
    for (const Tokens& tokens : inserted) CHECK(tree.find(root, tokens).pages == tokens.size() / 2);
}

// --- Other token types ---------------------------------------------------------------------------

namespace {

struct Collider {
    std::int32_t id = 0;
    friend bool operator==(const Collider&, const Collider&) = default;
};

/// A sampled feature: equal values with different bytes (0 and −0) are equal tokens.
struct Feature {
    float value = 0;
    friend bool operator==(const Feature&, const Feature&) = default;
};

struct Pair {
    std::int32_t a = 0;
    std::int32_t b = 0;
    friend bool operator==(const Pair&, const Pair&) = default;
};

template <class T>
void check_against_all(std::size_t p, const std::vector<std::vector<T>>& sequences) {
    RadixTree<T, NoValue, Mark> tree(p);
    const NodeId root = tree.add_root();
    for (const auto& sequence : sequences) {
        const TreeMatch match = tree.find(root, sequence);
        NodeId node = match.node;
        if (match.node_pages < tree.pages(node)) node = tree.split(node, match.node_pages);
        const auto rest = std::span(sequence).subspan(static_cast<std::size_t>(match.pages) * p);
        if (!rest.empty()) tree.insert(node, rest, {});
        check_audit(tree);
    }
    for (const auto& a : sequences) CHECK(tree.find(root, a).pages == a.size() / p);
}

}  // namespace
template <>
struct kvstem::token_hash<Collider> {
    static std::uint32_t of(const Collider&) noexcept { return 42; }
};
template <>
struct kvstem::token_hash<Feature> {
    static std::uint32_t of(const Feature& f) noexcept {
        return static_cast<std::uint32_t>(static_cast<std::int32_t>(f.value * 16));
    }
};

TEST_CASE("with a constant hash everything is still told apart", "[M1][C10]") {
    const std::size_t p = GENERATE(1U, 2U, 4U);
    std::vector<std::vector<Collider>> sequences;
    for (std::int32_t i = 0; i < 60; ++i) {
        std::vector<Collider> sequence;
        for (std::size_t j = 0; j < 2 * p; ++j) {
            sequence.push_back({static_cast<std::int32_t>(j) * 7 % (i + 1) + i % 3});
        }
        sequences.push_back(sequence);
    }
    check_against_all(p, sequences);
    RadixTree<Collider, NoValue, Mark> tree(1);
    const NodeId root = tree.add_root();
    tree.insert(root, std::array<Collider, 2>{{{1}, {2}}}, {});
    CHECK(tree.find(root, std::array<Collider, 2>{{{3}, {4}}}).pages == 0);
    tree.insert(root, std::array<Collider, 2>{{{3}, {4}}}, {});
    CHECK(tree.find(root, std::array<Collider, 2>{{{5}, {4}}}).pages == 0);
    CHECK(tree.find(root, std::array<Collider, 2>{{{3}, {5}}}).pages == 1);
}

TEST_CASE("tokens that are equal with different bytes are one token", "[M1]") {
    const std::size_t p = GENERATE(1U, 2U);
    RadixTree<Feature, NoValue, Mark> tree(p);
    const NodeId root = tree.add_root();
    tree.insert(root, std::array<Feature, 2>{{{0.0F}, {1.5F}}}, {});
    CHECK(tree.find(root, std::array<Feature, 2>{{{-0.0F}, {1.5F}}}).pages == 2 / p);
    tree.insert(root, std::array<Feature, 2>{{{2.0F}, {-0.0F}}}, {});
    CHECK(tree.find(root, std::array<Feature, 2>{{{-0.0F}, {1.5F}}}).pages == 2 / p);
    CHECK(tree.find(root, std::array<Feature, 2>{{{2.0F}, {0.0F}}}).pages == 2 / p);
    check_audit(tree);
}

TEST_CASE("tokens may be small integers, wide ones or structs", "[M1]") {
    check_against_all<std::uint8_t>(2, {{1, 2, 3, 4}, {1, 2, 3, 5}, {9, 9}, {1, 2}});
    check_against_all<std::uint64_t>(
        1, {{1ULL << 40, 2}, {1ULL << 41, 2}, {1ULL << 40, 2ULL << 32}, {1ULL << 40}});
    check_against_all<Pair>(1, {{{1, 2}, {3, 4}}, {{1, 2}, {3, 5}}, {{2, 1}}});
    check_against_all<Pair>(2, {{{1, 2}, {3, 4}}, {{1, 2}, {3, 5}}, {{2, 1}, {1, 2}}});
}
