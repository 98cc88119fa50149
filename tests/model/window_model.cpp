// SPDX-License-Identifier: MIT
// Leases whose windows slide, and the arithmetic of windows, against their definitions, over random
// operation sequences with an audit and a comparison of everything visible after every step.

#include <algorithm>
#include <cstddef>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "kvstem/radix_cache.hpp"
#include "kvstem/window.hpp"
#include "support/choices.hpp"
#include "support/fuzz_test.hpp"
#include "support/naive_window.hpp"
#include "support/radix_picture.hpp"
#include "support/test_scale.hpp"
#include "support/token_rows.hpp"

using namespace kvstem_test;
using kvstem::no_page;
using kvstem::SlidingWindow;
using kvstem::Token;

namespace {

/// One run: a cache with its leases, and for each lease what it has to hold. The rows of the KV
/// memory are the tokens, so that a page given away too early shows.
class Run {
  public:
    explicit Run(Choices& choices)
        : choices_(choices),
          page_tokens_(1 + below(5)),
          capacity_(6 + below(60)),
          window_{1 + below(8), below(4), 1 + below(5), 1 + below(4)},
          cache_({.page_tokens = page_tokens_}, PagePool(capacity_)),
          rows_(capacity_, page_tokens_) {}

    /// What differed first; null if nothing did.
    const char* play() {
        choices_.log << capacity_ << " pages of " << page_tokens_ << ", window "
                     << window_.window_tokens << " + " << window_.retained_tokens << ", interval "
                     << window_.interval_tokens << ", ahead " << window_.ahead_tokens << '\n';
        while (choices_.left()) {
            const char* fault = step();
            if (fault == nullptr) fault = compare();
            if (fault != nullptr) return fault;
        }
        leases_.clear();
        models_.clear();
        if (const char* fault = compare()) return fault;
        cache_.evict(capacity_);
        return cache_.free_pages() == capacity_ ? nullptr : "a page is lost";
    }

  private:
    using Cache = kvstem::RadixCache<>;

    std::size_t below(std::size_t n) { return choices_.below(n); }
    [[nodiscard]] std::size_t pages_for(std::size_t tokens) const {
        return (tokens + page_tokens_ - 1) / page_tokens_;
    }
    std::ostream& log(const char* what, std::size_t i) {
        return choices_.log << what << " (lease " << i << ") ";
    }

    /// Every prompt begins like every other one, for a while.
    Tokens random_prompt() {
        Tokens prompt = counted(below(4 * page_tokens_ + 4), 100);
        for (std::size_t n = below(6); n > 0; --n) prompt.push_back(static_cast<Token>(below(2)));
        return prompt;
    }

    const char* step() {
        const std::size_t op = below(24);
        if (op < 3 || leases_.empty()) return op == 0 ? publish_prompt() : acquire();
        const std::size_t i = below(leases_.size());
        if (op < 12) return compute(i);
        if (op < 14) return publish(i);
        if (op < 16) return slide(i);
        if (op < 18) return anchor(i);
        if (op < 20) return cut_back(i);
        if (op < 21) return grow(i);
        if (op < 22) return below(2) == 0 ? release(i) : switch_to_tree(i);
        return op < 23 ? check_arithmetic() : below(3) == 0 ? clear() : evict(below(5));
    }

    /// A request without a window, so that there is something to adopt.
    const char* publish_prompt() {
        const Tokens prompt = random_prompt();
        choices_.log << "publish " << prompt.size() << '\n';
        auto acquired = cache_.acquire(prompt);
        if (!acquired) return nullptr;
        rows_.compute(acquired.lease, std::span(prompt).subspan(acquired.lease.adopted()));
        acquired.lease.publish();
        return nullptr;
    }

    const char* acquire() {
        const Tokens prompt = random_prompt();
        choices_.log << "acquire " << prompt.size() << '\n';
        const std::size_t adopted = cache_.peek(prompt).adoptable_tokens;
        const std::size_t pages = pages_for(prompt.size()) + window_.bound_pages(page_tokens_);
        const std::size_t fresh = pages - adopted / page_tokens_;
        const std::size_t free = cache_.free_pages();
        const std::size_t evictable = cache_.evictable_pages();
        auto [admission, lease] = cache_.acquire_sliding(prompt, window_);
        if ((admission == Admission::never_fits) != (pages > capacity_)) return "never fits?";
        if (admission == Admission::exhausted) {
            return free + evictable < pages ? nullptr : "refused though there was room";
        }
        if (admission != Admission::granted) return nullptr;
        if (free + evictable < fresh) return "granted without room";
        if (lease.adopted() != adopted) return "adopted another length than peeked";
        NaiveSlidingLease model{window_, prompt, pages, adopted};
        model.tokens.assign(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(adopted));
        leases_.push_back(std::move(lease));
        models_.push_back(model);
        return nullptr;
    }

    /// The rest of a prompt in one go, or a step of an answer. Having slid, there is always room.
    const char* compute(std::size_t i) {
        NaiveSlidingLease& model = models_[i];
        Tokens next;
        if (model.tokens.size() < model.prompt.size()) {
            next.assign(model.prompt.begin() + static_cast<std::ptrdiff_t>(model.tokens.size()),
                        model.prompt.end());
        } else {
            next = counted(1 + below(window_.ahead_tokens), static_cast<Token>(below(200)));
        }
        if (leases_[i].written() + next.size() > leases_[i].capacity()) {
            if (const char* fault = slide(i)) return fault;
        }
        log("compute", i) << next.size() << '\n';
        if (leases_[i].written() + next.size() > leases_[i].capacity()) return "it runs dry";
        rows_.compute(leases_[i], next);
        model.tokens.insert(model.tokens.end(), next.begin(), next.end());
        return below(4) == 0 ? nullptr : slide(i);
    }

    const char* slide(std::size_t i) {
        log("slide", i) << '\n';
        NaiveSlidingLease& model = models_[i];
        model.slide();
        const auto holes_before = holes(leases_[i]);
        const std::size_t moved = leases_[i].slide();
        if (holes(leases_[i]) != holes_before + moved) return "slide: another number of pages";
        model.has_slid |= moved != 0;
        return nullptr;
    }
    static std::size_t holes(const Cache::Lease& lease) {
        const auto table = lease.block_table();
        return static_cast<std::size_t>(std::count(table.begin(), table.end(), no_page));
    }

    const char* publish(std::size_t i) {
        log("publish", i) << '\n';
        NaiveSlidingLease& model = models_[i];
        const std::size_t cached = cache_.cached_pages();
        const std::size_t published = leases_[i].publish();
        if (cache_.cached_pages() - cached != published) return "published another number";
        if (model.has_slid || !model.is_current) return nullptr;
        // Of the prompt only: a page of the answer has to serve later positions.
        const std::size_t whole = std::min(model.prompt.size(), model.tokens.size());
        model.shared = std::max(model.shared, whole / page_tokens_ * page_tokens_);
        return nullptr;
    }
    const char* switch_to_tree(std::size_t i) {
        log("switch to the tree", i) << '\n';
        const std::size_t free = cache_.free_pages();
        const std::size_t switched = leases_[i].switch_to_tree();
        return cache_.free_pages() == free + switched ? nullptr : "switched pages are not free";
    }

    const char* anchor(std::size_t i) {
        NaiveSlidingLease& model = models_[i];
        const std::size_t position = below(model.tokens.size() + 2);
        log("anchor", i) << "at " << position << '\n';
        const std::size_t before = leases_[i].block_table().size();
        const std::size_t free = cache_.free_pages() + cache_.evictable_pages();
        Admission admission{};
        try {
            admission = leases_[i].anchor(position);
        } catch (const kvstem::InvalidArgument&) {
            return model.can_go_to(position) ? "a possible anchor was refused" : nullptr;
        }
        if (!model.can_go_to(position)) return "an anchor where nothing is held";
        const std::size_t most =
            window_.anchored_bound_pages(page_tokens_) - window_.bound_pages(page_tokens_);
        const std::size_t more = leases_[i].block_table().size() - before;
        if (admission != Admission::granted) {
            const bool fits = model.pages + most <= capacity_ && most <= free;
            return fits || more != 0 ? "an anchor that fits was refused" : nullptr;
        }
        if (more > most) return "more pages than the bound of an anchor";
        model.pages += more;
        model.anchor = position;
        return nullptr;
    }

    const char* cut_back(std::size_t i) {
        NaiveSlidingLease& model = models_[i];
        const std::size_t back = below(below(3) == 0 ? model.tokens.size() + 2 : 6);
        const std::size_t position = model.tokens.size() + 1 - std::min(model.tokens.size(), back);
        log("cut back", i) << "to " << position << '\n';
        const bool possible = model.can_go_to(position) && position >= model.shared;
        try {
            if (leases_[i].cut_back(position, rows_) != Admission::granted) return "not granted";
        } catch (const kvstem::InvalidArgument&) {
            return possible ? "a possible cut was refused" : nullptr;
        }
        if (!possible) return "a cut to where nothing is held";
        model.tokens.resize(position);
        return nullptr;
    }

    const char* grow(std::size_t i) {
        NaiveSlidingLease& model = models_[i];
        const std::size_t more = below(3);
        log("grow", i) << "by " << more << " pages\n";
        const std::size_t free = cache_.free_pages() + cache_.evictable_pages();
        const Admission expected = more == 0                        ? Admission::granted
                                   : model.pages + more > capacity_ ? Admission::never_fits
                                   : more > free                    ? Admission::exhausted
                                                                    : Admission::granted;
        if (leases_[i].grow_to(leases_[i].capacity() + more * page_tokens_) != expected) {
            return "grow: another admission";
        }
        if (expected == Admission::granted) model.pages += more;
        return nullptr;
    }

    const char* release(std::size_t i) {
        log("release", i) << '\n';
        leases_.erase(leases_.begin() + static_cast<std::ptrdiff_t>(i));
        models_.erase(models_.begin() + static_cast<std::ptrdiff_t>(i));
        return nullptr;
    }
    const char* evict(std::size_t n) {
        choices_.log << "evict " << n << '\n';
        const std::size_t evictable = cache_.evictable_pages();
        return cache_.evict(n) == std::min(n, evictable) ? nullptr : "evicted another number";
    }
    const char* clear() {
        choices_.log << "clear\n";
        cache_.clear();
        for (NaiveSlidingLease& model : models_) model.is_current = false;
        return nullptr;
    }

    /// The functions of window.hpp, on random holes.
    const char* check_arithmetic() {
        std::vector<bool> present(below(12));
        for (std::size_t i = 0; i < present.size(); ++i) present[i] = below(4) != 0;
        const std::size_t window = below(12);
        const auto is_present = [&](std::size_t page) { return bool{present[page]}; };
        if (kvstem::longest_usable_length(present.size(), is_present, window, page_tokens_) !=
            naive_usable_length(present, window, page_tokens_)) {
            return "another usable length";
        }
        const std::size_t length = below(20);
        const std::size_t first_kept = below(length + 1);
        const std::size_t n = below(24);
        return kvstem::longest_window_cut(first_kept, length, n, window) ==
                       naive_window_cut(first_kept, length, n, window)
                   ? nullptr
                   : "another cut";
    }

    const char* compare() {
        const kvstem::AuditReport report = cache_.audit();
        if (!report.ok()) return report.findings.front().what;
        std::set<PageId> held;
        for (std::size_t i = 0; i < leases_.size(); ++i) {
            if (const char* fault = compare_lease(leases_[i], models_[i])) return fault;
            const auto table = leases_[i].block_table();
            held.insert(table.begin(), table.end());
        }
        held.erase(no_page);
        for (const auto& [key, cached] : cached_pages_of(cache_)) held.insert(cached.page);
        const bool all_current = std::all_of(models_.begin(), models_.end(),
                                             [](const auto& model) { return model.is_current; });
        // A tree that was cleared may hold pages that its leases have copies of.
        const std::size_t taken = capacity_ - cache_.free_pages();
        if (all_current ? held.size() != taken : held.size() > taken) return "a page is lost";
        return cache_.stats().leases == leases_.size() ? nullptr : "another number of leases";
    }

    /// Every row that may be read is there and right, and no page is held beyond the bound.
    const char* compare_lease(const Cache::Lease& lease, const NaiveSlidingLease& model) {
        if (lease.written() != model.tokens.size()) return "another length is written";
        if (lease.kept_from() != model.kept_from) return "rows are kept from elsewhere";
        if (lease.published() != model.shared) return "another length is published";
        const auto table = lease.block_table();
        std::set<PageId> named(table.begin(), table.end());
        const std::size_t holes = Run::holes(lease);
        if (holes != 0) named.erase(no_page);
        if (named.size() != model.pages) return "more or fewer pages than were taken";
        if (named.size() != table.size() - holes) return "a page stands in a table twice";
        for (std::size_t p = 0; p < model.tokens.size(); ++p) {
            if (p >= model.shared && p < model.kept_from) continue;
            const PageId page = table[p / page_tokens_];
            if (page == no_page) return "a row that may be read is not there";
            if (rows_.page(page)[p % page_tokens_] != model.tokens[p]) return "another row";
        }
        return nullptr;
    }

    Choices& choices_;
    std::size_t page_tokens_;
    std::size_t capacity_;
    SlidingWindow window_;
    Cache cache_;
    TokenRows rows_;
    std::vector<Cache::Lease> leases_;
    std::vector<NaiveSlidingLease> models_;
};

const char* play(Choices& choices) {
    return Run(choices).play();
}

}  // namespace

KVSTEM_FUZZ_TEST(window, play, (large_test_divisor == 1 ? 1500 : 300) * test_scale(), 1200,
                 "leases whose windows slide hold what they have to and no page more",
                 "[W1][W2][W3][W4][P4][L3][C32][R2]")
