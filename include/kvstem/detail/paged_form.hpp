// SPDX-License-Identifier: MIT
// PrefixCachedEngine for engines that attend over pages: a lease for each call, nothing is copied.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "../config.hpp"
#include "../engine_concepts.hpp"
#include "../errors.hpp"
#include "../namespace.hpp"
#include "../page_pool.hpp"
#include "../radix_cache.hpp"
#include "../token.hpp"

namespace kvstem::inline KVSTEM_ABI::detail {

/// What the three forms have in common is what PrefixCachedEngine calls; see there for the order.
template <class Engine>
class PagedForm {
  public:
    using Cache = RadixCache<>;
    using Tokens = std::span<const Token>;

    /// What one call of `generate` holds.
    struct Request {
        std::size_t reused = 0;
        bool has_logits = false;  // of the prompt, without computing anything
        bool slides = false;      // the model's window, and the prompt is in the cache
        typename Cache::Lease lease{};
    };

    template <class Options>
    PagedForm(Engine& engine, const Options& options)
        : engine_(engine),
          cache_({.page_tokens = engine.page_tokens()}, PagePool(checked_capacity(engine))),
          gives_back_(options.gives_back()) {}

    [[nodiscard]] Request start(Tokens prompt, const Namespace& name, std::vector<float>&) {
        auto [admission, lease] = acquire(prompt, name);
        if (admission != Admission::granted) {
            fail<InvalidArgument>(
                "a prompt of %zu tokens does not fit the engine's %zu pages of %zu tokens",
                prompt.size(), cache_.pages().capacity_pages(), cache_.page_tokens());
        }
        const std::size_t adopted = lease.adopted();
        return {adopted, false, false, std::move(lease)};
    }

    /// Calls `engine.forward` on tokens that follow the rows so far; `use` gets what it returns.
    template <class Use>
    void compute(Request& request, Tokens tokens, std::size_t start, Use&& use) {
        KVSTEM_ASSERT(start == request.lease.written());
        use(engine_.forward(tokens, start, request.lease.block_table()));
        request.lease.wrote(tokens);
        if (request.slides) request.lease.slide();
    }

    [[nodiscard]] bool make_room(Request& request, std::size_t positions) {
        return request.lease.grow_to(positions) == Admission::granted;
    }

    void store(Request& request, Tokens, std::span<const float>, const Namespace&) {
        stored_ += request.lease.publish();
        request.lease.switch_to_tree();  // no work is in flight, so duplicates can go at once
        if (request.slides || !bounded_) return;
        request.slides = true;
        request.lease.slide();
    }

    [[nodiscard]] std::size_t peek(Tokens prompt, const Namespace& name) const noexcept {
        return cache_.peek(prompt, name).adoptable_tokens;
    }
    void clear() noexcept { cache_.clear(); }
    std::size_t drop(const Namespace& name) noexcept { return cache_.drop(name); }

    template <class Stats>
    void fill_in(Stats& stats) const noexcept {
        const RadixCacheStats cache = cache_.stats();
        stats.stored_blocks = stored_;
        stats.evicted_blocks = cache.evicted_pages;
        stats.blocks = cache.cached_pages;
        stats.capacity_blocks = cache.capacity_pages;
        stats.bytes = cache.cached_pages * engine_.page_bytes();
    }
    [[nodiscard]] AuditReport audit() const {
        AuditReport report = cache_.audit();
        const std::size_t held = cache_.pages().capacity_pages() - cache_.free_pages();
        report.require(cache_.stats().leases != 0 || held == cache_.cached_pages(),
                       "a page is held by nobody, but not free", held);
        return report;
    }

  private:
    static std::size_t checked_capacity(const Engine& engine) {
        const std::size_t pages = engine.capacity_pages();
        const std::size_t page_tokens = engine.page_tokens();
        if (pages == 0 || page_tokens == 0) {
            fail<InvalidArgument>(
                "the engine has %zu pages of %zu tokens: too small a cache for one block", pages,
                page_tokens);
        }
        return pages;
    }

    [[nodiscard]] std::size_t window() const {
        if constexpr (has_sliding_window<Engine>) return engine_.sliding_window();
        return 0;
    }

    [[nodiscard]] Acquired<typename Cache::Lease> acquire(Tokens prompt, const Namespace& name) {
        if constexpr (has_copy_rows<Engine>) {
            return acquire(prompt, name, [this](PageId from, PageId to, std::size_t rows) {
                engine_.copy_rows(from, to, rows);
            });
        } else {
            return acquire(prompt, name, NoCopy{});
        }
    }
    template <class Copy>
    [[nodiscard]] Acquired<typename Cache::Lease> acquire(Tokens prompt, const Namespace& name,
                                                          Copy&& copy) {
        bounded_ = false;
        if (gives_back_ && window() != 0) {
            auto sliding = cache_.acquire_sliding(prompt, {.window_tokens = window()}, name, copy);
            bounded_ = sliding.admission == Admission::granted;
            if (bounded_) return sliding;
        }
        // Without a window, or without room for its bound: as far as the pages go.
        return cache_.acquire(prompt, name, copy);
    }

    Engine& engine_;
    Cache cache_;
    std::uint64_t stored_ = 0;
    bool gives_back_;       // pages behind the window, if there is one
    bool bounded_ = false;  // the call at hand slides
};

}  // namespace kvstem
