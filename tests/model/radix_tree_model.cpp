// SPDX-License-Identifier: MIT
// RadixTree against a tree of plain vectors, over random operations, with an audit and a comparison
// of every node after every step.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "catch.hpp"
#include "kvstem/radix_tree.hpp"
#include "support/counting_kv.hpp"
#include "support/test_scale.hpp"

using kvstem::no_node;
using kvstem::NodeHandle;
using kvstem::NodeId;
using kvstem::PageId;
using kvstem::Token;
using namespace kvstem_test;

namespace {

struct Mark {
    std::uint32_t number = 0;
};
using Tree = kvstem::RadixTree<Token, PageId, Mark>;

/// The obvious tree: every node owns its tokens.
struct NaiveNode {
    NodeId parent = no_node;
    Tokens tokens;
    std::vector<PageId> values;
    std::vector<NodeId> children;  // in the order of the siblings
    std::uint32_t mark = 0;
    std::uint32_t run = 0;  // which insertion brought it
    NodeHandle handle;
};

/// How long the edges are: short ones collide often, long ones fill segments, so that runs move.
struct Shape {
    std::size_t page_tokens;
    std::size_t longest_pages;
    std::size_t most_nodes;
};

class Run {
  public:
    Run(unsigned seed, Shape shape) : random_(seed), shape_(shape), tree_(shape.page_tokens) {
        for (std::size_t i = 1 + below(2); i > 0; --i) add_root();
    }

    std::string play(int steps) {
        for (int i = 0; i < steps; ++i) {
            growing_ = i / (steps / 4) % 2 == 0;
            step();
            const char* fault = fault_ != nullptr ? fault_ : compare();
            if (fault != nullptr) return fault + ("; the operations were:\n" + trace_.str());
        }
        return {};
    }
    [[nodiscard]] std::size_t moved() const { return moved_; }

  private:
    std::size_t below(std::size_t n) { return random_() % n; }
    static std::uint32_t number(NodeId id) { return static_cast<std::uint32_t>(id); }
    NaiveNode& at(NodeId id) { return model_.at(number(id)); }
    std::size_t pages(const NaiveNode& node) const {
        return node.tokens.size() / shape_.page_tokens;
    }

    NodeId any_node() {
        auto i = model_.begin();
        std::advance(i, static_cast<std::ptrdiff_t>(below(model_.size())));
        return NodeId{i->first};
    }
    NodeId any_leaf() {
        NodeId id = any_node();
        while (!at(id).children.empty()) id = at(id).children[below(at(id).children.size())];
        return id;
    }

    void add_root() {
        const NodeId root = tree_.add_root();
        if (model_.count(number(root)) != 0) fault_ = "add_root: an id twice";
        model_[number(root)].handle = tree_.handle(root);
        trace_ << "add root " << number(root) << '\n';
    }

    void step() {
        switch (below(12)) {
            case 0:
                return split(any_node());
            case 1:
                return join(any_node());
            case 2:
                return trim(any_leaf());
            case 3:
                return to_front(any_node());
            case 4:
                return move_behind(any_node());
            case 5:
                return mark(any_node());
            case 6:
                if (below(30) == 0) add_root();
                return;
            case 7:
            case 8:
                return tidy();
            default:
                break;
        }
        if (growing_ && model_.size() < shape_.most_nodes ? below(5) != 0 : below(5) == 0) {
            return insert(random_tokens());
        }
        remove(any_leaf());
    }

    /// A sequence that follows a known path for a while and then goes its own way.
    Tokens random_tokens() {
        root_ = any_node();
        Tokens tokens;
        for (; at(root_).parent != no_node; root_ = at(root_).parent) {
            tokens.insert(tokens.begin(), at(root_).tokens.begin(), at(root_).tokens.end());
        }
        tokens.resize(below(tokens.size() + 1));
        for (std::size_t n = below(shape_.longest_pages * shape_.page_tokens + 1); n > 0; --n) {
            tokens.push_back(static_cast<Token>(below(3)));
        }
        return tokens;
    }

    struct NaiveMatch {
        NodeId node;
        std::size_t node_pages = 0;
        std::size_t pages = 0;
    };
    NaiveMatch naive_find(NodeId root, std::span<const Token> tokens) {
        NaiveMatch match{root, 0, 0};
        while (true) {
            std::size_t best = 0;
            NodeId next = no_node;
            for (const NodeId child : at(match.node).children) {
                const Tokens& there = at(child).tokens;
                const auto end =
                    std::mismatch(there.begin(), there.end(), tokens.begin(), tokens.end());
                const auto same = static_cast<std::size_t>(end.first - there.begin());
                if (same / shape_.page_tokens == 0) continue;
                best = same / shape_.page_tokens;
                next = child;
            }
            if (next == no_node) return match;
            match = {next, best, match.pages + best};
            if (best < pages(at(next))) return match;
            tokens = tokens.subspan(best * shape_.page_tokens);
        }
    }

    void check_find(const Tokens& tokens, const NaiveMatch& expected) {
        const auto match = tree_.find(root_, tokens);
        if (match.node != expected.node || match.pages != expected.pages ||
            (expected.pages != 0 && match.node_pages != expected.node_pages)) {
            fault_ = "find: another match";
            return;
        }
        check_partial(tokens, expected, match);
    }
    void check_partial(const Tokens& tokens, const NaiveMatch& expected,
                       const kvstem::TreeMatch& match) {
        const auto rest = std::span(tokens).subspan(expected.pages * shape_.page_tokens);
        std::size_t longest = 0;
        const auto consider = [&](NodeId id, std::size_t page) {
            const auto there =
                std::span(at(id).tokens).subspan(page * shape_.page_tokens, shape_.page_tokens);
            const auto end = std::mismatch(there.begin(), there.end(), rest.begin(), rest.end());
            longest = std::max(longest, static_cast<std::size_t>(end.first - there.begin()));
        };
        if (expected.node_pages < pages(at(expected.node))) {
            consider(expected.node, expected.node_pages);
        } else {
            for (const NodeId child : at(expected.node).children) consider(child, 0);
        }
        if (tree_.find_partial(match, rest).tokens != longest)
            fault_ = "find_partial: another count";
    }

    void insert(Tokens tokens) {
        trace_ << "insert under root " << number(root_);
        if (tokens.size() <= 40) {
            for (const Token t : tokens) trace_ << ' ' << t;
        }
        trace_ << '\n';
        const NaiveMatch match = naive_find(root_, tokens);
        check_find(tokens, match);
        tokens.resize(tokens.size() / shape_.page_tokens * shape_.page_tokens);
        if (fault_ != nullptr || match.pages * shape_.page_tokens == tokens.size()) return;
        NodeId parent = match.node;
        if (match.node_pages < pages(at(parent))) {
            parent = split_at(parent, static_cast<std::uint32_t>(match.node_pages));
        }
        tokens.erase(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(
                                                          match.pages * shape_.page_tokens));
        std::vector<PageId> values;
        for (std::size_t i = 0; i < tokens.size() / shape_.page_tokens; ++i) {
            values.push_back(PageId{++next_page_});
        }
        const NodeId id = tree_.insert(parent, tokens, values);
        if (model_.count(number(id)) != 0) fault_ = "insert: an id twice";
        NaiveNode& node = model_[number(id)];
        node = {parent, tokens, values, {}, 0, ++next_run_, tree_.handle(id)};
        at(parent).children.insert(at(parent).children.begin(), id);
    }

    NodeId split_at(NodeId id, std::uint32_t keep) {
        trace_ << "split " << number(id) << " after " << keep << '\n';
        const NodeId upper_id = tree_.split(id, keep);
        if (model_.count(number(upper_id)) != 0) fault_ = "split: an id twice";
        NaiveNode& lower = at(id);
        NaiveNode upper = lower;
        const auto cut = static_cast<std::ptrdiff_t>(keep * shape_.page_tokens);
        upper.tokens.assign(lower.tokens.begin(), lower.tokens.begin() + cut);
        upper.values.assign(lower.values.begin(), lower.values.begin() + keep);
        upper.children = {id};
        upper.handle = tree_.handle(upper_id);
        lower.tokens.erase(lower.tokens.begin(), lower.tokens.begin() + cut);
        lower.values.erase(lower.values.begin(), lower.values.begin() + keep);
        auto& siblings = at(lower.parent).children;
        *std::find(siblings.begin(), siblings.end(), id) = upper_id;
        lower.parent = upper_id;
        model_[number(upper_id)] = upper;
        return upper_id;
    }
    void split(NodeId id) {
        if (pages(at(id)) < 2) return;
        (void)split_at(id, static_cast<std::uint32_t>(1 + below(pages(at(id)) - 1)));
    }

    void join(NodeId id) {
        trace_ << "join " << number(id) << '\n';
        NaiveNode& lower = at(id);
        const bool possible = lower.parent != no_node && at(lower.parent).parent != no_node &&
                              at(lower.parent).run == lower.run &&
                              at(lower.parent).children.size() == 1;
        if (tree_.join_with_parent(id) != possible) fault_ = "join: another answer";
        if (!possible || fault_ != nullptr) return;
        const NodeId upper_id = lower.parent;
        const NaiveNode upper = at(upper_id);
        lower.tokens = joined(upper.tokens, lower.tokens);
        lower.values.insert(lower.values.begin(), upper.values.begin(), upper.values.end());
        lower.parent = upper.parent;
        auto& siblings = at(upper.parent).children;
        *std::find(siblings.begin(), siblings.end(), upper_id) = id;
        forget(upper_id);
    }

    void trim(NodeId leaf) {
        if (pages(at(leaf)) == 0) return;
        const auto keep = static_cast<std::uint32_t>(1 + below(pages(at(leaf))));
        trace_ << "trim " << number(leaf) << " to " << keep << '\n';
        tree_.trim(leaf, keep);
        at(leaf).tokens.resize(keep * shape_.page_tokens);
        at(leaf).values.resize(keep);
    }

    void remove(NodeId leaf) {
        trace_ << "remove " << number(leaf) << '\n';
        if (at(leaf).parent != no_node) {
            tree_.remove_leaf(leaf);
            auto& siblings = at(at(leaf).parent).children;
            siblings.erase(std::find(siblings.begin(), siblings.end(), leaf));
            forget(leaf);
        } else if (model_.size() > 1) {
            tree_.remove_root(leaf);
            forget(leaf);
        }
    }

    void forget(NodeId id) {
        dead_.push_back(at(id).handle);
        model_.erase(number(id));
    }

    void to_front(NodeId id) {
        trace_ << "move " << number(id) << " to the front\n";
        tree_.move_to_front(id);
        if (at(id).parent == no_node) return;
        auto& siblings = at(at(id).parent).children;
        siblings.erase(std::find(siblings.begin(), siblings.end(), id));
        siblings.insert(siblings.begin(), id);
    }
    void move_behind(NodeId id) {
        if (at(id).parent == no_node) return;
        auto& siblings = at(at(id).parent).children;
        const NodeId other = siblings[below(siblings.size())];
        if (other == id) return;
        trace_ << "move " << number(id) << " behind " << number(other) << '\n';
        tree_.move_behind(id, other);
        siblings.erase(std::find(siblings.begin(), siblings.end(), id));
        siblings.insert(std::find(siblings.begin(), siblings.end(), other) + 1, id);
    }
    void mark(NodeId id) {
        at(id).mark = static_cast<std::uint32_t>(random_());
        tree_.data(id).number = at(id).mark;
    }

    void tidy() {
        trace_ << "tidy\n";
        std::map<std::uint32_t, const Token*> places;
        for (const auto& [id, node] : model_) places[id] = tree_.tokens(NodeId{id}).data();
        tree_.tidy();
        for (const auto& [id, place] : places) {
            moved_ += tree_.tokens(NodeId{id}).data() != place ? 1U : 0U;
        }
    }

    const char* compare() {
        kvstem::AuditReport report;
        tree_.audit(report);
        if (!report.ok()) return report.findings.front().what;
        if (tree_.node_count() != model_.size()) return "another number of nodes";
        std::size_t all_pages = 0;
        for (const auto& [number, node] : model_) {
            const NodeId id{number};
            all_pages += pages(node);
            if (!tree_.is_alive(node.handle)) return "a living node's handle is dead";
            if (tree_.parent(id) != node.parent) return "another parent";
            if (tree_.pages(id) != pages(node)) return "another number of pages";
            const auto tokens = tree_.tokens(id);
            const auto values = tree_.values(id);
            if (!std::equal(tokens.begin(), tokens.end(), node.tokens.begin(), node.tokens.end()))
                return "other tokens";
            if (!std::equal(values.begin(), values.end(), node.values.begin(), node.values.end()))
                return "other values";
            if (tree_.data(id).number != node.mark) return "other data";
            if (tree_.child_count(id) != node.children.size()) return "another number of children";
            NodeId child = tree_.first_child(id);
            for (const NodeId expected : node.children) {
                if (child != expected) return "siblings in another order";
                child = tree_.next_sibling(child);
            }
        }
        if (tree_.page_count() != all_pages) return "another number of pages in all";
        for (const NodeHandle& handle : dead_) {
            if (tree_.is_alive(handle)) return "the handle of a node that is gone is alive";
        }
        const Tokens tokens = random_tokens();
        check_find(tokens, naive_find(root_, tokens));
        return fault_;
    }

    std::mt19937 random_;
    Shape shape_;
    Tree tree_;
    std::map<std::uint32_t, NaiveNode> model_;
    std::vector<NodeHandle> dead_;
    NodeId root_ = no_node;
    bool growing_ = true;
    const char* fault_ = nullptr;
    std::uint32_t next_page_ = 0;
    std::uint32_t next_run_ = 0;
    std::size_t moved_ = 0;
    std::ostringstream trace_;
};

std::size_t compare_with_model(Shape shape, unsigned seeds, int steps) {
    std::size_t moved = 0;
    for (unsigned seed = 0; seed < seeds * test_scale(); ++seed) {
        Run run(seed, shape);
        const std::string fault = run.play(steps);
        INFO("seed " << seed << ": " << fault);
        CHECK(fault.empty());
        moved += run.moved();
    }
    return moved;
}

}  // namespace

TEST_CASE("RadixTree does what a tree of vectors does", "[M1][M8][R2]") {
    const std::size_t p = GENERATE(1U, 2U, 4U, 16U);
    CAPTURE(p);
    (void)compare_with_model({p, 4, 60}, 12, 400);
}

TEST_CASE("RadixTree does what a tree of vectors does while its runs are moved", "[M1][C07][R2]") {
    const std::size_t p = GENERATE(1U, 16U);
    CAPTURE(p);
    CHECK(compare_with_model({p, 8000 / p, 60}, 2, 500) > 0);
}
