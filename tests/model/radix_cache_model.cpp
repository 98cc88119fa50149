// SPDX-License-Identifier: MIT
// RadixCache against a map from prefixes to pages, over thousands of random operation sequences,
// with an audit and a comparison of everything visible after every step.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kvstem/radix_cache.hpp"
#include "support/choices.hpp"
#include "support/fuzz_test.hpp"
#include "support/naive_radix_cache.hpp"
#include "support/radix_picture.hpp"
#include "support/test_scale.hpp"
#include "support/token_rows.hpp"

using namespace kvstem_test;

namespace {

/// One run: a cache and its model, the same operations on both. The rows of the KV memory are the
/// tokens, so that a wrong page shows wherever it is read.
class Run {
  public:
    explicit Run(Choices& choices)
        : choices_(choices),
          page_tokens_(std::size_t{1} << std::array{0u, 1u, 2u, 4u}[below(4)]),
          capacity_(4 + below(28)),
          alphabet_(1 + below(3)),
          longest_(page_tokens_ * (2 + below(5))),
          cache_({.page_tokens = page_tokens_}, PagePool(capacity_)),
          model_{{page_tokens_}, capacity_, {0, 1, 2}, 3},
          rows_(capacity_, page_tokens_) {}

    /// What differed first; null if nothing did.
    const char* play() {
        choices_.log << capacity_ << " pages of " << page_tokens_ << '\n';
        while (choices_.left()) {
            const char* fault = step();
            if (fault == nullptr) fault = compare();
            if (fault != nullptr) return fault;
        }
        return drain();
    }

  private:
    using Cache = kvstem::RadixCache<>;

    std::size_t below(std::size_t n) { return choices_.below(n); }

    static Namespace name_of(std::size_t name) {
        const std::array<Namespace, 3> names{Namespace{}, {.adapter = "X"}, {.salt = "X"}};
        return names[name];
    }
    std::size_t random_name() { return below(3) == 0 ? below(3) : 0; }

    /// A random sequence; often one that a lease has, cut and continued, so that prefixes collide.
    Tokens random_tokens() {
        Tokens tokens;
        if (!model_.pages.empty() && below(2) == 0) {
            auto page = model_.pages.begin();
            std::advance(page, static_cast<std::ptrdiff_t>(below(model_.pages.size())));
            tokens = page->first.second;
            if (below(2) == 0) tokens.resize(below(tokens.size() + 1));
        }
        append_random(tokens, below(longest_ + 1));
        if (tokens.size() > longest_ && below(20) != 0) tokens.resize(longest_);
        return tokens;
    }
    void append_random(Tokens& tokens, std::size_t n) {
        for (; n > 0; --n) tokens.push_back(static_cast<kvstem::Token>(below(alphabet_)));
    }
    std::size_t pages_for(std::size_t tokens) const {
        return (tokens + page_tokens_ - 1) / page_tokens_;
    }
    std::ostream& log(const char* what, std::size_t lease) {
        return choices_.log << what << " (lease " << lease << ") ";
    }
    void log(const Tokens& tokens) {
        for (const kvstem::Token token : tokens) choices_.log << token << ' ';
        choices_.log << '\n';
    }

    const char* step() {
        const std::size_t op = below(26);
        if (op < 6 || leases_.empty()) return acquire(random_tokens());
        const std::size_t i = below(leases_.size());
        if (op < 11) return compute(i);
        if (op < 14) return publish(i);
        if (op < 16) return fork(i);
        if (op < 18) return cut_back(i);
        if (op < 19) return grow(i);
        if (op < 20) return switch_to_tree(i);
        if (op < 22) return release(i);
        if (op < 23) return evict(below(5));
        if (op < 24) return leave_to_a_fork(i);
        if (op < 25) return fill();
        return below(3) == 0 ? clear() : drop(random_name());
    }

    /// The ids that the cache took for the places [from, end) of a block table have to be free
    /// ones.
    const char* take_fresh(NaiveRadixCache::Lease& model, const Cache::Lease& lease) {
        const auto leased = model_.held_by_leases();
        for (std::size_t i = model.table.size(); i < lease.block_table().size(); ++i) {
            const PageId page = lease.block_table()[i];
            if (leased.count(page) != 0) return "a page was handed out that a lease holds";
            for (const auto& [key, cached] : model_.pages) {
                if (cached.page == page) return "a page was handed out that is in the tree";
            }
            model.table.push_back(page);
        }
        return nullptr;
    }

    const char* acquire(const Tokens& prompt) {
        const std::size_t name = random_name();
        const bool copies = below(2) == 0;
        choices_.log << "acquire" << (copies ? " with copies " : " ") << text_of(name_of(name))
                     << ": ";
        log(prompt);
        const std::size_t tree = model_.tree_of[name];
        const std::size_t cached = model_.whole_pages_cached(tree, prompt);
        const std::size_t most = prompt.empty() ? 0 : (prompt.size() - 1) / page_tokens_;
        const std::size_t matched = std::min(cached, most);
        const auto match = cache_.peek(prompt, name_of(name));
        if (match.cached_tokens != cached * page_tokens_) return "peek: another length";
        if (match.adoptable_tokens != matched * page_tokens_) return "peek: adopts another length";

        NaiveRadixCache::Lease model{tree, prompt, matched, {}};
        model.tokens.resize(matched * page_tokens_);
        for (std::size_t n = 1; n <= matched; ++n) {
            model.table.push_back(model_.pages.at(model_.key(tree, prompt, n)).page);
        }
        model_.leases.push_back(model);  // pinned before anything is evicted
        const bool never = pages_for(prompt.size()) > capacity_;
        const bool fits = !never && model_.make_room(pages_for(prompt.size()) - matched);
        auto acquired = copies ? cache_.acquire(prompt, name_of(name), rows_)
                               : cache_.acquire(prompt, name_of(name));
        const Admission expected = never  ? Admission::never_fits
                                   : fits ? Admission::granted
                                          : Admission::exhausted;
        if (acquired.admission != expected) return "acquire: another admission";
        if (!fits) {
            model_.leases.pop_back();  // without a stamp: a refusal is not a use
            return nullptr;
        }
        if (acquired.lease.block_table().size() != pages_for(prompt.size())) {
            return "acquire: another number of pages";
        }
        for (std::size_t i = 0; i < matched; ++i) {
            if (acquired.lease.block_table()[i] != model.table[i]) return "adopted another page";
        }
        if (const char* fault = take_fresh(model_.leases.back(), acquired.lease)) return fault;
        Tokens partial = prompt;
        if (!partial.empty()) partial.pop_back();
        const std::size_t adopted =
            matched * page_tokens_ + (copies ? model_.partial(tree, partial, matched) : 0);
        if (acquired.lease.adopted() != adopted) return "adopted another length";
        model_.leases.back().tokens.assign(prompt.begin(),
                                           prompt.begin() + static_cast<std::ptrdiff_t>(adopted));
        ++(adopted != 0 ? hits_ : misses_);
        queried_ += prompt.size();
        hit_ += adopted;
        leases_.push_back(std::move(acquired.lease));
        planned_.push_back(prompt);
        return nullptr;
    }

    const char* compute(std::size_t i) {
        Tokens& planned = planned_[i];
        NaiveRadixCache::Lease& model = model_.leases[i];
        if (planned.size() == model.tokens.size()) append_random(planned, 1 + below(3));
        const std::size_t end = std::min(planned.size(), leases_[i].capacity());
        if (end <= model.tokens.size()) return nullptr;
        const std::size_t n = 1 + below(end - model.tokens.size());
        const auto from = planned.begin() + static_cast<std::ptrdiff_t>(model.tokens.size());
        const Tokens next(from, from + static_cast<std::ptrdiff_t>(n));
        log("compute", i);
        log(next);
        rows_.compute(leases_[i], next);
        model.tokens.insert(model.tokens.end(), next.begin(), next.end());
        return nullptr;
    }

    const char* publish(std::size_t i) {
        log("publish", i) << '\n';
        const std::size_t before = model_.pages.size();
        model_.publish(model_.leases[i]);
        const std::size_t published = leases_[i].publish();
        return published == model_.pages.size() - before ? nullptr : "published another number";
    }

    const char* switch_to_tree(std::size_t i) {
        log("switch to the tree", i) << '\n';
        NaiveRadixCache::Lease& model = model_.leases[i];
        std::size_t switched = 0;
        for (std::size_t n = 0; n < model.shared; ++n) {
            const PageId page = model_.pages.at(model_.key(model.tree, model.tokens, n + 1)).page;
            switched += std::exchange(model.table[n], page) != page ? 1 : 0;
        }
        return leases_[i].switch_to_tree() == switched ? nullptr : "switched another number";
    }

    const char* fork(std::size_t i) {
        log("fork", i) << '\n';
        NaiveRadixCache::Lease child = model_.leases[i];
        const std::size_t whole = child.tokens.size() / page_tokens_;
        const bool copies = child.tokens.size() % page_tokens_ != 0;
        child.table.resize(whole);
        for (std::size_t n = 0; n < child.shared; ++n) {
            child.table[n] = model_.pages.at(model_.key(child.tree, child.tokens, n + 1)).page;
        }
        const bool fits = !copies || model_.make_room(1);
        auto forked = leases_[i].fork(rows_);
        if (forked.admission != (fits ? Admission::granted : Admission::exhausted)) {
            return "fork: another admission";
        }
        if (!fits) return nullptr;
        for (std::size_t n = 0; n < whole; ++n) {
            if (forked.lease.block_table()[n] != child.table[n]) return "fork: another page";
        }
        if (const char* fault = take_fresh(child, forked.lease)) return fault;
        if (forked.lease.block_table().size() != whole + (copies ? 1 : 0)) {
            return "fork: another number of pages";
        }
        model_.leases.push_back(child);
        leases_.push_back(std::move(forked.lease));
        planned_.push_back(planned_[i]);
        return nullptr;
    }

    /// Publishes what a fork holds as well, so that evicting it frees nothing.
    const char* leave_to_a_fork(std::size_t i) {
        if (const char* fault = fork(i)) return fault;
        if (const char* fault = publish(i)) return fault;
        return release(i);
    }
    /// A request for more pages than are free, so that some are evicted for it.
    const char* fill() {
        Tokens prompt;
        append_random(prompt, page_tokens_ * (cache_.free_pages() + 1 + below(3)));
        return acquire(prompt);
    }

    const char* cut_back(std::size_t i) {
        const std::size_t position = below(model_.leases[i].tokens.size() + 1);
        log("cut back", i) << "to " << position << '\n';
        const std::size_t whole = position / page_tokens_;
        const std::size_t rows = position % page_tokens_;
        NaiveRadixCache::Lease& model = model_.leases[i];
        const PageId cut = rows == 0 ? kvstem::no_page : model.table[whole];
        bool shared = rows != 0 && model_.held_by_leases().count(cut) > 1;
        for (const auto& [key, page] : model_.pages) shared |= rows != 0 && page.page == cut;
        const bool fits = !shared || model_.make_room(1);
        const Admission admission = leases_[i].cut_back(position, rows_);
        if (admission != (fits ? Admission::granted : Admission::exhausted)) {
            return "cut back: another admission";
        }
        if (!fits) return nullptr;
        if (whole < model.shared) model_.unpin(i, whole);
        model.table.resize(whole + (rows != 0 && !shared ? 1 : 0));
        model.tokens.resize(position);
        planned_[i] = model.tokens;
        append_random(planned_[i], below(2 * page_tokens_));
        if (leases_[i].block_table().size() != whole + (rows != 0 ? 1 : 0)) {
            return "cut back: another number of pages";
        }
        return take_fresh(model, leases_[i]);
    }

    const char* grow(std::size_t i) {
        NaiveRadixCache::Lease& model = model_.leases[i];
        const std::size_t positions = model.tokens.size() + below(longest_);
        log("grow", i) << "to " << positions << '\n';
        const std::size_t wanted = pages_for(positions);
        const bool never = wanted > capacity_ && wanted > model.table.size();
        const bool fits = wanted <= model.table.size() ||
                          (!never && model_.make_room(wanted - model.table.size()));
        const Admission expected = fits    ? Admission::granted
                                   : never ? Admission::never_fits
                                           : Admission::exhausted;
        if (leases_[i].grow_to(positions) != expected) return "grow: another admission";
        if (leases_[i].block_table().size() !=
            (fits ? std::max(wanted, model.table.size()) : model.table.size())) {
            return "grow: another number of pages";
        }
        return take_fresh(model, leases_[i]);
    }

    const char* release(std::size_t i) {
        log("release", i) << '\n';
        const auto at = static_cast<std::ptrdiff_t>(i);
        leases_.erase(leases_.begin() + at);
        planned_.erase(planned_.begin() + at);
        model_.unpin(i, 0);
        model_.leases.erase(model_.leases.begin() + at);
        return nullptr;
    }

    const char* evict(std::size_t n) {
        choices_.log << "evict " << n << '\n';
        std::size_t evicted = 0;
        while (evicted < n && model_.evict()) ++evicted;
        return cache_.evict(n) == evicted ? nullptr : "evicted another number";
    }

    const char* clear() {
        choices_.log << "clear\n";
        for (std::size_t name = 0; name < 3; ++name) model_.drop(name);
        cache_.clear();
        return nullptr;
    }
    const char* drop(std::size_t name) {
        choices_.log << "drop " << text_of(name_of(name)) << '\n';
        const std::size_t tree = model_.tree_of[name];
        std::size_t cached = 0;
        for (const auto& [key, page] : model_.pages) cached += key.first == tree ? 1 : 0;
        model_.drop(name);
        return cache_.drop(name_of(name)) == cached ? nullptr : "dropped another number";
    }

    const char* compare() {
        const kvstem::AuditReport report = cache_.audit();
        if (!report.ok()) return report.findings.front().what;
        CachedPages cached;
        std::vector<std::size_t> owners(capacity_);
        for (std::size_t name = 0; name < 3; ++name) {
            for (const auto& [key, page] : model_.pages) {
                if (key.first != model_.tree_of[name]) continue;
                cached[{text_of(name_of(name)), key.second}] = {page.page, model_.is_pinned(key)};
                ++owners[index_of(page.page)];
                const auto last = key.second.end() - static_cast<std::ptrdiff_t>(page_tokens_);
                if (rows_.page(page.page) != Tokens(last, key.second.end())) {
                    return "a cached page holds rows of other tokens";
                }
            }
        }
        if (cached_pages_of(cache_) != cached) return "other pages are cached or pinned";
        if (cache_.free_pages() != model_.free()) return "another number of free pages";
        if (cache_.cached_pages() != cached.size()) return "another number of cached pages";
        const auto pinned = std::count_if(cached.begin(), cached.end(),
                                          [](const auto& entry) { return entry.second.pinned; });
        if (cache_.pinned_pages() != static_cast<std::size_t>(pinned)) {
            return "another number of pinned pages";
        }
        for (const PageId page : model_.held_by_leases()) ++owners[index_of(page)];
        for (std::uint32_t page = 0; page < capacity_; ++page) {
            if (cache_.refs(PageId{page}) != owners[page]) return "other owners of a page";
        }
        return compare_leases();
    }
    const char* compare_leases() {
        for (std::size_t i = 0; i < leases_.size(); ++i) {
            const NaiveRadixCache::Lease& model = model_.leases[i];
            if (leases_[i].written() != model.tokens.size()) return "another length is written";
            if (leases_[i].published() != model.shared * page_tokens_) return "published elsewhere";
            const auto table = leases_[i].block_table();
            if (!std::equal(table.begin(), table.end(), model.table.begin(), model.table.end())) {
                return "another block table";
            }
            if (rows_.read(leases_[i]) != model.tokens) return "a lease reads rows of other tokens";
        }
        const auto stats = cache_.stats();
        if (stats.hits != hits_ || stats.misses != misses_) return "other hits";
        if (stats.queried_tokens != queried_ || stats.hit_tokens != hit_) return "other tokens";
        if (stats.missed_tokens != queried_ - hit_) return "other missed tokens";
        return stats.leases == leases_.size() ? nullptr : "another number of leases";
    }

    /// Evicts what may go page by page, then releases everything and evicts the rest: the order of
    /// leaving was the same, and nothing was lost.
    const char* drain() {
        while (cache_.evictable_pages() != 0) {
            if (const char* fault = evict(1)) return fault;
            if (const char* fault = compare()) return fault;
        }
        while (!leases_.empty()) {
            release(below(leases_.size()));
            if (const char* fault = compare()) return fault;
        }
        while (cache_.cached_pages() != 0) {
            if (const char* fault = evict(1)) return fault;
            if (const char* fault = compare()) return fault;
        }
        if (cache_.free_pages() != capacity_) return "a page is lost";
        const auto stats = cache_.stats();
        return stats.nodes == 0 && stats.namespaces == 0 ? nullptr : "an empty tree has nodes";
    }

    Choices& choices_;
    std::size_t page_tokens_;
    std::size_t capacity_;
    std::size_t alphabet_;
    std::size_t longest_;
    Cache cache_;
    NaiveRadixCache model_;
    TokenRows rows_;
    std::vector<Cache::Lease> leases_;
    std::vector<Tokens> planned_;  // what each lease is about to write, from its first token on
    std::uint64_t hits_ = 0;
    std::uint64_t misses_ = 0;
    std::uint64_t queried_ = 0;
    std::uint64_t hit_ = 0;
};

const char* play(Choices& choices) {
    return Run(choices).play();
}

}  // namespace

KVSTEM_FUZZ_TEST(
    radix_cache, play, (large_test_divisor == 1 ? 2000 : 400) * test_scale(), 1600,
    "RadixCache does what a map from prefixes to pages does",
    "[M1][M2][M3][M4][M5][M6][M7][M8][P1][P2][P3][P5][P6][G1][G3][E1][E2][E4][E5][L1][L2][L3]"
    "[L4][L5][C1][R2][C05]")
