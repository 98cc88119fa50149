// SPDX-License-Identifier: MIT
// Hazard: evicts what is least likely to be used soon, by what all traffic so far has shown.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "../config.hpp"
#include "../detail/hazard_leaves.hpp"
#include "../detail/hazard_table.hpp"
#include "../detail/path_keys.hpp"
#include "../detail/touch_history.hpp"
#include "../radix_tree.hpp"
#include "../token.hpp"
#include "policy.hpp"

namespace kvstem::inline KVSTEM_ABI {

/// Evicts the leaf of the lowest worth, worth being learned from the traffic. With no history it is
/// least recently used, leaves first. There is nothing to set.
///
/// Choose it where prompts have turns or parts of different kinds and the cache is small for the
/// traffic: on public traces it hits up to twice as often as LeastRecentlyUsed, and has nowhere
/// lost 1 %. It costs memory for a history (60 to 90 bytes for each of max(4 × capacity, 65,536)
/// blocks) and about five times LeastRecentlyUsed's time.
///
/// The order, exactly. Time is the number of granted requests. Every block (page) that a request
/// could adopt, resident or not, is touched when the request is granted, before anything is
/// evicted; a block that is published without having been touched (an answer) is touched then. A
/// touch gives a block
///
///   - a count: one more than at its last touch, if the history has all blocks from the root to it,
///     and 1 otherwise. The history has the most recently touched blocks; above its bound the
///     oldest touch goes first, and of one request the deepest block;
///   - a class: min(count, 4), with the octave of d, the number of the request's blocks that were
///     not in the history (0; 1; 2, 3; 4 … 7; …), with the request's tag (RequestHints; those above
///     15 count as 15). Partial last blocks have one class of their own.
///
/// For each class and octave of age (HazardTable) it counts re-uses and block-requests of exposure,
/// over all blocks of the history. Every 16 requests their ratio, drawn towards what count, size
/// and tag make one expect and towards the pooled ratio, becomes the hazard; the worth is the
/// largest ratio, over all horizons, of expected hits to expected block-requests of residence.
/// Equal worth goes by the oldest touch, then the deepest, then the one published first. All in
/// doubles and the same bits everywhere, if multiplications and additions are not fused
/// (-ffp-contract=off).
///
/// Complexity: a request O(its blocks + classes in use), of which a constant number of steps every
/// 16 requests; a victim O(log n) amortised + O(cells in use), at most 24 for each class. Memory
/// grows with the history and is never given back: in the steady state nothing is allocated.
/// Exceptions: `attach`, `request` and `reserve` throw std::bad_alloc with nothing changed.
class Hazard {
  public:
    using NodeData = detail::HazardLeaf;  // of a root only `touched` is used: its namespace's key
    struct RequestData {
        std::uint32_t tag = 0;
    };
    static constexpr std::uint32_t most_tags = 16;

    void attach(std::size_t capacity_pages) {
        constexpr std::size_t most = (std::size_t{1} << 30) - 1;  // runs have 30 bits
        pages_.resize(capacity_pages);
        history_limit_ = std::min(std::max(4 * capacity_pages, std::size_t{65'536}), most);
        first_prior_ = 1.0 / static_cast<double>(std::max(capacity_pages, std::size_t{1}));
        use_tag(0);
    }

    template <class Nodes, class Info>
    void request(Nodes& nodes, const Info& info, RequestData& data) {
        const std::size_t n = info.path_pages();
        const std::uint32_t tag = std::min(info.hints.tag, most_tags - 1);
        history_.reserve(n);
        path_.reserve(n);
        use_tag(tag);
        // Nothing fails from here on.
        data.tag = tag;
        now_ = requests_++;
        nodes.order(info.root).touched = detail::namespace_key(info.name);
        advance();
        trim();
        find_path(nodes, info);
        count_reuses();
        touch_path(tag, info.hints.partial_tail);
        link_matched_pages(nodes, info);
        if (now_ % 16 == 0) table_.rebuild(now_, first_prior_);
        // As many as this request has added will have to go at the next one.
        if (history_.size() > history_limit_) {
            history_.prefetch_oldest(history_.size() - history_limit_);
        }
    }

    void reserve(std::size_t pages) { history_.reserve(pages); }

    template <class Nodes>
    void inserted(Nodes& nodes, NodeId node, const RequestData& data) noexcept;

    template <class Nodes>
    void unpinned(Nodes& nodes, NodeId node) noexcept {
        if (nodes.is_leaf(node)) insert(nodes, node, 0);
    }
    template <class Nodes>
    void became_leaf(Nodes& nodes, NodeId node) noexcept {
        insert(nodes, node, 0);
    }
    template <class Nodes>
    void pinned(Nodes& nodes, NodeId node) noexcept {
        if (nodes.order(node).heap.in_heap()) leaves_.take_out(nodes, node);
    }
    template <class Nodes>
    void removed(Nodes& nodes, NodeId node) noexcept {
        pinned(nodes, node);
    }
    template <class Nodes>
    void split(Nodes& nodes, NodeId upper, NodeId lower) noexcept {
        nodes.order(upper).heap = {};
        nodes.order(upper).depth = nodes.order(lower).depth - nodes.pages(lower);
    }
    template <class Nodes>
    void split_pinned(Nodes& nodes, NodeId upper, NodeId lower) noexcept {
        split(nodes, upper, lower);
    }
    template <class Nodes>
    void trimming(Nodes& nodes, NodeId leaf, std::uint32_t gone) noexcept {
        leaves_.take_out(nodes, leaf);
        nodes.order(leaf).depth -= gone;
        nodes.order(leaf).alike -= gone;
        insert(nodes, leaf, gone);
    }
    /// The last pages of one class that were touched together.
    template <class Nodes>
    [[nodiscard]] std::uint32_t run(Nodes& nodes, NodeId leaf) const noexcept {
        return nodes.order(leaf).alike;
    }
    template <class Nodes>
    [[nodiscard]] NodeId victim(Nodes& nodes) noexcept {
        return leaves_.least(nodes, table_, now_);
    }

    [[nodiscard]] std::size_t bytes() const noexcept {
        return history_.bytes() + table_.bytes() + pages_.capacity() * sizeof(Page) +
               leaves_.bytes() + path_.capacity() * sizeof(PathBlock);
    }

  private:
    using History = detail::TouchHistory;

    struct Touch {
        std::uint64_t time;
        std::uint16_t block_class;
    };
    /// A page in the tree. It has the touch of its entry, as long as the two name each other; a
    /// page whose entry was trimmed keeps the touch itself. What is recorded of a page that has
    /// left the tree is never read.
    struct Page {
        std::uint64_t key = 0;
        std::uint64_t time = 0;
        std::uint32_t entry = History::none;
        std::uint16_t block_class = 0;
    };
    struct PathBlock {
        std::uint64_t key;
        std::uint32_t entry;
    };
    void use_tag(std::uint32_t tag) {
        leaves_.use_classes((tag + 1) * detail::classes_per_tag);
        table_.use_tag(tag);
    }

    // --- History ---

    void advance() noexcept {
        history_.advance(now_, [this](const History::Run& run, std::size_t from, std::size_t to) {
            table_.leave(run.block_class, from, run.live, now_);
            table_.enter(run.block_class, to, run.live, now_);
        });
    }
    void trim() noexcept {
        while (history_.size() > history_limit_) {
            const std::uint32_t r = history_.run_of(history_.oldest());
            const History::Run run = history_.run(r);
            const std::size_t excess = history_.size() - history_limit_;
            const auto blocks = static_cast<std::uint32_t>(std::min<std::size_t>(run.live, excess));
            table_.leave(run.block_class, run.bucket, blocks, now_);
            history_.leave_run(r, blocks);
            for (std::uint32_t i = 0; i < blocks; ++i) {
                const std::uint32_t entry = history_.oldest();
                keep_touch(entry, {run.time, run.block_class});
                history_.remove(entry);
            }
        }
    }
    [[nodiscard]] Touch touch_of(PageId page) const noexcept {
        const Page& at = pages_[index_of(page)];
        if (at.entry == History::none) return {at.time, at.block_class};
        const History::Run& run = history_.run(history_.run_of(at.entry));
        return {run.time, run.block_class};
    }
    [[nodiscard]] bool touched_alike(PageId a, PageId b) const noexcept {
        const Touch touch_a = touch_of(a);
        const Touch touch_b = touch_of(b);
        return touch_a.time == touch_b.time && touch_a.block_class == touch_b.block_class;
    }
    /// The page of an entry goes on without it.
    void keep_touch(std::uint32_t entry, Touch touch) noexcept {
        const PageId page = history_.page(entry);
        if (page == no_page || pages_[index_of(page)].entry != entry) return;
        pages_[index_of(page)].entry = History::none;
        pages_[index_of(page)].time = touch.time;
        pages_[index_of(page)].block_class = touch.block_class;
    }
    void link(PageId page, std::uint64_t key, std::uint32_t entry) noexcept {
        // If another page has the same key, only this one follows the entry from now on.
        const PageId before = history_.page(entry);
        if (before != no_page && before != page) keep_touch(entry, touch_of(before));
        pages_[index_of(page)].key = key;
        pages_[index_of(page)].entry = entry;
        history_.set_page(entry, page);
    }

    // --- A request ---

    /// Keys and entries of the path: of matched pages from their records, of the others by looking.
    template <class Nodes, class Info>
    void find_path(Nodes& nodes, const Info& info) noexcept {
        path_.resize(info.path_pages());
        matched_without_entry_ = false;
        std::size_t i = info.matched_pages;
        for (NodeId node = info.node; i > 0; node = nodes.parent(node)) {
            const auto pages = nodes.page_ids(node);
            for (std::size_t p = pages.size(); p-- > 0;) {
                const Page& page = pages_[index_of(pages[p])];
                path_[--i] = {page.key, page.entry};
                matched_without_entry_ |= page.entry == History::none;
            }
        }
        i = info.matched_pages;
        std::uint64_t key = i > 0 ? path_[i - 1].key : nodes.order(info.root).touched;
        for (std::size_t j = i; j < path_.size(); ++j) {
            key = detail::next_key(key, info.path.data() + j * info.page_tokens, info.page_tokens);
            path_[j].key = key;
            history_.prefetch(key);
        }
        for (std::size_t j = i; j < path_.size(); ++j) path_[j].entry = history_.find(path_[j].key);
    }
    void count_reuses() noexcept {
        for (std::size_t i = 0; i < path_.size();) {
            if (path_[i].entry == History::none) {
                ++i;
                continue;
            }
            const std::uint32_t r = history_.run_of(path_[i].entry);
            std::uint32_t blocks = 0;
            while (i < path_.size() && path_[i].entry != History::none &&
                   history_.run_of(path_[i].entry) == r) {
                ++blocks;
                ++i;
            }
            const History::Run& run = history_.run(r);
            table_.reuse(run.block_class, run.bucket, blocks, now_);
            history_.leave_run(r, blocks);
        }
    }
    void touch_path(std::uint32_t tag, bool partial_tail) noexcept {
        std::size_t known = 0;
        while (known < path_.size() && path_[known].entry != History::none) ++known;
        const std::size_t size = detail::size_group(path_.size() - known);
        std::size_t run_class = ~std::size_t{0};
        std::uint32_t run = History::none;
        // The deepest first, so that it is the first of the request to be forgotten.
        for (std::size_t i = path_.size(); i-- > 0;) {
            std::uint32_t& entry = path_[i].entry;
            const std::uint32_t count =
                i < known ? std::min(history_.count(entry) + 1, History::most_counted) : 1;
            const bool is_tail = partial_tail && i + 1 == path_.size();
            const std::size_t in_tag =
                is_tail ? detail::tail_class : (count - 1) * detail::size_groups + size;
            const std::size_t block_class = tag * detail::classes_per_tag + in_tag;
            if (block_class != run_class) {
                enter_table(run);
                run_class = block_class;
                run = history_.begin_run(now_, static_cast<std::uint16_t>(block_class));
            }
            if (entry == History::none) {
                entry = history_.add(path_[i].key, run, count);
            } else {
                history_.touch(entry, run, count);
            }
        }
        enter_table(run);
    }
    void enter_table(std::uint32_t run) noexcept {
        if (run == History::none) return;
        table_.enter(history_.run(run).block_class, 0, history_.run(run).live, now_);
    }
    /// Matched pages whose entries had been trimmed have new ones.
    template <class Nodes, class Info>
    void link_matched_pages(Nodes& nodes, const Info& info) noexcept {
        if (!matched_without_entry_) return;
        std::size_t i = info.matched_pages;
        for (NodeId node = info.node; i > 0; node = nodes.parent(node)) {
            const auto pages = nodes.page_ids(node);
            for (std::size_t p = pages.size(); p-- > 0;) {
                --i;
                link(pages[p], path_[i].key, path_[i].entry);
            }
        }
    }

    // --- Leaves ---

    template <class Nodes>
    void insert(Nodes& nodes, NodeId leaf, std::uint32_t gone) noexcept {
        const auto pages = nodes.page_ids(leaf);
        const std::size_t left = pages.size() - gone;
        NodeData& data = nodes.order(leaf);
        if (gone == 0 || data.alike == 0) {
            const Touch touch = touch_of(pages[left - 1]);
            data.touched = touch.time;
            data.block_class = touch.block_class;
            data.alike = 1;
            while (data.alike < left &&
                   touched_alike(pages[left - 1], pages[left - 1 - data.alike])) {
                ++data.alike;
            }
        }
        leaves_.put(nodes, leaf, now_);
    }
    std::vector<Page> pages_;  // by PageId
    History history_;
    detail::HazardTable table_;
    detail::HazardLeaves leaves_;
    std::vector<PathBlock> path_;  // of the latest request
    std::size_t history_limit_ = 0;
    double first_prior_ = 1;
    std::uint64_t requests_ = 0;
    std::uint64_t now_ = 0;  // the number of the latest request, from 0
    std::uint32_t serial_ = 0;
    bool matched_without_entry_ = false;
};

/// The pages of a new node get their entries: those of the request that publishes them, or new
/// ones.
template <class Nodes>
void Hazard::inserted(Nodes& nodes, NodeId node, const RequestData& data) noexcept {
    const NodeId above = nodes.parent(node);
    const std::uint32_t begin = nodes.is_root(above) ? 0 : nodes.order(above).depth;
    std::uint64_t key = nodes.is_root(above) ? nodes.order(above).touched
                                             : pages_[index_of(nodes.page_ids(above).back())].key;
    const auto pages = nodes.page_ids(node);
    const auto tokens = nodes.tokens(node);
    const std::size_t page_tokens = tokens.size() / pages.size();
    nodes.order(node) = {};
    nodes.order(node).serial = ++serial_;
    nodes.order(node).depth = begin + static_cast<std::uint32_t>(pages.size());
    std::uint32_t run = History::none;
    for (std::size_t i = 0; i < pages.size(); ++i) {
        key = detail::next_key(key, tokens.data() + i * page_tokens, page_tokens);
        const std::size_t position = begin + i;
        std::uint32_t entry = History::none;
        if (position < path_.size() && path_[position].key == key) {
            entry = path_[position].entry;
        } else {
            entry = history_.find(key);
        }
        if (entry == History::none) {
            const std::size_t block_class =
                data.tag * detail::classes_per_tag + detail::size_group(pages.size() - i);
            if (run == History::none) {
                run = history_.begin_run(now_, static_cast<std::uint16_t>(block_class));
            }
            entry = history_.add(key, run, 1);
        }
        link(pages[i], key, entry);
    }
    enter_table(run);
}

}  // namespace kvstem
