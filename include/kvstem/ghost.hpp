// SPDX-License-Identifier: MIT
// GhostCache: what a cache of another capacity would hit, estimated while running, in little
// memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "config.hpp"
#include "detail/ghost_list.hpp"
#include "detail/path_keys.hpp"
#include "errors.hpp"
#include "namespace.hpp"
#include "token.hpp"

namespace kvstem::inline KVSTEM_ABI {

/// Estimated page hit rates of a least-recently-used cache, from 0 to 1.
struct GhostRates {
    double half_capacity = 0;
    double capacity = 0;
    double twice_capacity = 0;
    double four_times_capacity = 0;
    std::uint64_t pages = 0;          ///< whole pages of all prompts observed
    std::uint64_t sampled_pages = 0;  ///< of them, those in the sample
};

/// The real cache's size, and how closely it is to be watched.
struct GhostOptions {
    std::size_t capacity_pages = 0;  ///< of the real cache
    std::size_t page_tokens = 16;
    /// Room for ghosts; the more, the closer the estimate. 32 to 48 bytes each.
    std::size_t ghosts = 16'384;
};

/// Keeps ghosts (keys without pages) of pages that prompts were made of, and so knows how many of
/// them a cache of half, the same, twice and four times the capacity would have had. Use it to
/// decide whether more memory would pay, or less would do. It estimates LeastRecentlyUsed, whatever
/// the real cache evicts by.
///
/// Half of the ghosts are the pages used last: what is used again soon is counted exactly. The
/// others are a spatial sample: a page is in it if the hash of its prefix is below a threshold, so
/// that all uses of a page are seen or none, and a cache of a fraction R of the capacity that sees
/// a fraction R of the pages hits as often as the whole (SHARDS: Waldspurger, Park, Garthwaite,
/// Ahmad: Efficient MRC construction with SHARDS, FAST 2015). What SHARDS corrects afterwards, that
/// the few pages which are in every prompt are in the sample or not by chance, does not arise:
/// those are among the first half. R is ghosts / (8 × capacity). Where all of 4 × capacity fit, the
/// figures are exact for requests that run one after the other.
///
///     kvstem::GhostCache ghosts({.capacity_pages = 4096, .page_tokens = 16});
///     ghosts.observe(prompt);                              // once for each granted request
///     if (ghosts.rates().twice_capacity > ghosts.rates().capacity + 0.05) buy_memory();
///
/// Complexity: `observe` O(tokens), with O(1) list steps a page. Exceptions: InvalidArgument for a
/// capacity below 2 pages, a page size of 0, room for fewer than 64 ghosts. Construction and
/// `observe` throw std::bad_alloc, the latter with nothing changed. Threads: none of its own.
class GhostCache {
  public:
    explicit GhostCache(GhostOptions options);

    /// Takes note of a prompt (anything a span can be made of): of its whole pages, as if all were
    /// cached from now on.
    template <class Tokens>
    void observe(const Tokens& prompt, const Namespace& name = {}) {
        const std::span tokens(prompt);
        const std::size_t n = options_.page_tokens;
        path_.reserve(tokens.size() / n);  // all that can fail
        std::uint64_t key = detail::namespace_key(name);
        path_.clear();
        for (std::size_t begin = 0; begin + n <= tokens.size(); begin += n) {
            key = detail::next_key(key, tokens.data() + begin, n);
            ++pages_;
            const std::uint64_t mixed = detail::hash_round(key, 0, detail::hash_factor_b);
            if (mixed < threshold_) ++sampled_pages_;
            path_.push_back(mixed);
        }
        for (const std::uint64_t page : path_) count(page);
        // The deepest page is the first to go: it counts as used before the others.
        for (std::size_t i = path_.size(); i-- > 0;) {
            if (path_[i] < threshold_) sample_.use(path_[i]);
            if (has_recent_) recent_.use(path_[i]);
        }
    }

    [[nodiscard]] GhostRates rates() const noexcept;

    [[nodiscard]] std::size_t bytes() const noexcept {
        return recent_.bytes() + sample_.bytes() + path_.capacity() * sizeof(std::uint64_t);
    }

  private:
    using List = detail::GhostList;

    void count(std::uint64_t page) noexcept {
        if (has_recent_ && recent_.zone_of(page) != List::no_zone) {
            ++recent_hits_;
        } else if (page < threshold_) {
            const std::size_t zone = sample_.zone_of(page);
            if (zone != List::no_zone) ++hits_[zone];
        }
    }

    static constexpr std::uint64_t everything = ~std::uint64_t{0};

    GhostOptions options_;
    std::uint64_t threshold_ = everything;
    bool has_recent_ = false;  // not needed where the sample is everything
    List recent_;
    List sample_;
    std::vector<std::uint64_t> path_;
    std::uint64_t recent_hits_ = 0;
    std::array<std::uint64_t, List::zones> hits_{};  // of the sample, where the recent pages missed
    std::uint64_t pages_ = 0;
    std::uint64_t sampled_pages_ = 0;
};

inline GhostCache::GhostCache(GhostOptions options) : options_(options) {
    if (options.capacity_pages < 2 || options.page_tokens == 0 || options.ghosts < 64) {
        detail::fail<InvalidArgument>(
            "a capacity of %zu pages (at least 2) of %zu tokens (at least 1) with %zu ghosts (at "
            "least 64)",
            options.capacity_pages, options.page_tokens, options.ghosts);
    }
    const auto capacity = static_cast<double>(options.capacity_pages);
    double share = 1;
    if (static_cast<double>(options.ghosts) < 4 * capacity) {
        share = static_cast<double>(options.ghosts) / (8 * capacity);
        threshold_ = static_cast<std::uint64_t>(share * 0x1p64);
        // All of them are hits at half the capacity, too.
        const std::size_t recent =
            std::max(std::min(options.ghosts, options.capacity_pages) / 2, List::zones);
        has_recent_ = true;
        recent_ = List({recent - 3, recent - 2, recent - 1, recent});
    }
    List::Ends ends{};
    std::size_t least = 1;
    for (std::size_t zone = 0; zone < List::zones; ++zone) {
        const double places = capacity * share / 2 * static_cast<double>(1u << zone);
        // Rounded to the nearest.
        const auto twice = static_cast<std::size_t>(places * 2);
        ends[zone] = std::max((twice + 1) / 2, least);
        least = ends[zone] + 1;
    }
    sample_ = List(ends);
}

inline GhostRates GhostCache::rates() const noexcept {
    GhostRates rates;
    rates.pages = pages_;
    rates.sampled_pages = sampled_pages_;
    if (pages_ == 0) return rates;
    const double share = threshold_ == everything ? 1.0 : static_cast<double>(threshold_) / 0x1p64;
    double* const out[List::zones] = {&rates.half_capacity, &rates.capacity, &rates.twice_capacity,
                                      &rates.four_times_capacity};
    auto hits = static_cast<double>(recent_hits_);
    for (std::size_t zone = 0; zone < List::zones; ++zone) {
        hits += static_cast<double>(hits_[zone]) / share;
        *out[zone] = std::min(hits / static_cast<double>(pages_), 1.0);
    }
    return rates;
}

}  // namespace kvstem
