// SPDX-License-Identifier: MIT
// PrefixCachedEngine for engines with a KV of their own: rows are kept in blocks of host memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
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

/// The rows of page ids. A block enters whole and is replaced whole, so that rows may be read from
/// the engine before it is known where they will stand.
class BlockStore {
  public:
    using Block = std::unique_ptr<std::byte[]>;

    void put(PageId page, Block block) {
        if (index_of(page) >= blocks_.size()) blocks_.resize(index_of(page) + std::size_t{1});
        blocks_[index_of(page)] = std::move(block);
    }
    [[nodiscard]] const std::byte* at(PageId page) const noexcept {
        KVSTEM_ASSERT(index_of(page) < blocks_.size() && blocks_[index_of(page)]);
        return blocks_[index_of(page)].get();
    }
    void clear() noexcept { blocks_.clear(); }

  private:
    std::vector<Block> blocks_;  // by page id; ids are handed out lowest first
};

/// Leases live only while rows are copied in or out: once they are in the engine, nobody needs the
/// blocks, and eviction may take them while the answer is being decoded.
///
/// The pool has one page more than the cache may hold. RadixCache leaves a token to run and takes a
/// page for it; with the spare one a lookup never evicts, so that a call that fails leaves what was
/// there.
template <class Engine>
class RowForm {
  public:
    using Cache = RadixCache<>;
    using Tokens = std::span<const Token>;

    struct Request {
        std::size_t reused = 0;
        bool has_logits = false;
        std::size_t stored_blocks = 0;  // of this sequence, offered so far
    };

    template <class Options>
    RowForm(Engine& engine, const Options& options)
        : engine_(engine),
          row_bytes_(engine.row_bytes()),
          block_tokens_(options.block_tokens),
          capacity_(checked_capacity(options)),
          cache_({.page_tokens = block_tokens_}, PagePool(capacity_ + 1)) {}

    /// Puts the longest cached prefix into the engine, to the token, but never the prompt's last
    /// one.
    [[nodiscard]] Request start(Tokens prompt, const Namespace& name, std::vector<float>&) {
        PageId partial = no_page;
        std::size_t partial_rows = 0;
        // The rows go straight from the cached block into the engine, so the lease's page stays
        // empty.
        const auto note_partial = [&](PageId from, PageId, std::size_t rows) noexcept {
            partial = from;
            partial_rows = rows;
        };
        const std::size_t whole = cache_.peek(prompt, name).adoptable_tokens;
        const std::size_t looked_at = std::min(prompt.size() - whole, block_tokens_) + whole;
        const auto [admission, lease] = cache_.acquire(prompt.first(looked_at), name, note_partial);
        KVSTEM_ASSERT(admission == Admission::granted);
        for (std::size_t i = 0; i < whole / block_tokens_; ++i) {
            write(i * block_tokens_, block_tokens_, lease.block_table()[i]);
        }
        if (partial_rows != 0) write(whole, partial_rows, partial);
        return {whole + partial_rows, false, whole / block_tokens_};
    }

    template <class Use>
    void compute(Request&, Tokens tokens, std::size_t start, Use&& use) {
        use(engine_.forward(tokens, start));
    }

    /// The engine has room for every position of its context.
    [[nodiscard]] bool make_room(Request&, std::size_t) const noexcept { return true; }

    /// Offers the whole blocks of a sequence whose rows the engine holds; as many as the cache can
    /// hold.
    void store(Request& request, Tokens sequence, std::span<const float>, const Namespace& name) {
        const std::size_t wanted = std::min(sequence.size() / block_tokens_, capacity_);
        if (wanted <= request.stored_blocks) return;
        const Tokens tokens = sequence.first(wanted * block_tokens_);
        // All that can fail in the engine comes first; the cache is touched when the rows are here.
        const std::size_t known = cache_.peek(tokens, name).cached_tokens / block_tokens_;
        std::vector<BlockStore::Block> fresh;
        for (std::size_t i = known; i < wanted; ++i) fresh.push_back(read(i * block_tokens_));
        {
            auto [admission, lease] = cache_.acquire(tokens, name);
            KVSTEM_ASSERT(admission == Admission::granted);
            for (std::size_t i = 0; i < fresh.size(); ++i) {
                blocks_.put(lease.block_table()[known + i], std::move(fresh[i]));
            }
            // With nothing fresh the lease's one page is a duplicate; publishing then only
            // refreshes.
            lease.wrote(tokens.subspan(lease.written()));
            stored_ += lease.publish();
        }
        request.stored_blocks = wanted;
        if (cache_.cached_pages() > capacity_) cache_.evict(cache_.cached_pages() - capacity_);
    }

    [[nodiscard]] std::size_t peek(Tokens prompt, const Namespace& name) const noexcept {
        return cache_.peek(prompt, name).adoptable_tokens;
    }
    void clear() noexcept {
        cache_.clear();
        blocks_.clear();
    }
    std::size_t drop(const Namespace& name) noexcept { return cache_.drop(name); }

    template <class Stats>
    void fill_in(Stats& stats) const noexcept {
        stats.stored_blocks = stored_;
        stats.evicted_blocks = cache_.stats().evicted_pages;
        stats.blocks = cache_.cached_pages();
        stats.capacity_blocks = capacity_;
        stats.bytes = cache_.cached_pages() * block_tokens_ * row_bytes_;
    }
    [[nodiscard]] AuditReport audit() const {
        AuditReport report = cache_.audit();
        report.require(cache_.free_pages() + cache_.cached_pages() == capacity_ + 1,
                       "a block is held by nobody, but not free", cache_.free_pages());
        report.require(cache_.cached_pages() <= capacity_, "more blocks than the capacity",
                       cache_.cached_pages());
        return report;
    }

  private:
    template <class Options>
    [[nodiscard]] std::size_t checked_capacity(const Options& options) const {
        const std::size_t most_tokens =
            std::numeric_limits<std::size_t>::max() / std::max<std::size_t>(row_bytes_, 1);
        if (row_bytes_ == 0 || block_tokens_ == 0 || block_tokens_ > most_tokens) {
            fail<InvalidArgument>("blocks of %zu tokens, whose rows have %zu bytes each",
                                  block_tokens_, row_bytes_);
        }
        const std::size_t fitting = options.max_bytes / (block_tokens_ * row_bytes_);
        if (fitting == 0 || options.max_blocks == 0) {
            fail<InvalidArgument>(
                "a cache of %zu bytes and %zu blocks is too small for one block of %zu bytes",
                options.max_bytes, options.max_blocks, block_tokens_ * row_bytes_);
        }
        // One page id fewer than there are, because the pool has the spare one as well.
        constexpr std::size_t most_blocks = 0xFFFF'FFFEu;
        return std::min({fitting, options.max_blocks, most_blocks});
    }

    void write(std::size_t begin, std::size_t rows, PageId page) {
        engine_.write_rows(begin, begin + rows,
                           std::span<const std::byte>(blocks_.at(page), rows * row_bytes_));
    }

    [[nodiscard]] BlockStore::Block read(std::size_t begin) {
        const std::size_t bytes = block_tokens_ * row_bytes_;
        BlockStore::Block block(new std::byte[bytes]);
        const std::size_t got = engine_.read_rows(begin, begin + block_tokens_,
                                                  std::span<std::byte>(block.get(), bytes));
        if (got != bytes) {
            fail<InvalidArgument>(
                "the engine read back %zu bytes for positions %zu up to %zu; its rows of %zu bytes "
                "make %zu",
                got, begin, begin + block_tokens_, row_bytes_, bytes);
        }
        return block;
    }

    Engine& engine_;
    std::size_t row_bytes_;
    std::size_t block_tokens_;
    std::size_t capacity_;
    Cache cache_;
    BlockStore blocks_;
    std::uint64_t stored_ = 0;
};

}  // namespace kvstem
