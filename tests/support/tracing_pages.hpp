// SPDX-License-Identifier: MIT
// A page source in place of PagePool: records every call, and refuses, throws or misbehaves on
// demand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <span>
#include <vector>

#include "support/token_rows.hpp"

namespace kvstem_test {

struct SourceFailed : std::exception {
    [[nodiscard]] const char* what() const noexcept override { return "the page source failed"; }
};

/// What an engine's own allocator would be: outside the cache, and outliving it.
struct PageLedger {
    enum class Call { acquired, refused, retained, released };
    struct Record {
        Call call;
        Ids pages;
    };

    explicit PageLedger(std::size_t capacity) : holds(capacity) {}

    std::vector<std::uint32_t> holds;
    std::vector<Record> records;
    std::size_t wrong_calls = 0;  // releases and retains of pages that nobody held

    // The n-th call from when it is set on (the first is 1) goes wrong; back at 0 when it has.
    std::size_t refuse_acquire_in = 0;
    std::size_t throw_from_acquire_in = 0;
    std::size_t throw_from_retain_in = 0;
    /// May overwrite the ids that an acquire is about to hand out.
    std::function<void(std::span<PageId>)> tamper;

    [[nodiscard]] std::size_t free() const noexcept {
        std::size_t n = 0;
        for (const std::uint32_t hold : holds) n += hold == 0 ? 1 : 0;
        return n;
    }
    static bool now(std::size_t& countdown) noexcept { return countdown != 0 && --countdown == 0; }
};

/// The handle a RadixCache holds by value. Pages are handed out highest id first, unlike
/// PagePool's.
class TracingPages {
  public:
    explicit TracingPages(PageLedger& ledger) noexcept : ledger_(&ledger) {}

    [[nodiscard]] bool acquire(std::span<PageId> out) {
        PageLedger& ledger = *ledger_;
        if (PageLedger::now(ledger.throw_from_acquire_in)) throw SourceFailed();
        if (PageLedger::now(ledger.refuse_acquire_in) || out.size() > ledger.free()) {
            ledger.records.push_back({PageLedger::Call::refused, {}});
            return false;
        }
        std::size_t id = ledger.holds.size();
        for (PageId& page : out) {
            do --id;
            while (ledger.holds[id] != 0);
            ledger.holds[id] = 1;
            page = PageId{static_cast<std::uint32_t>(id)};
        }
        if (ledger.tamper) ledger.tamper(out);
        ledger.records.push_back({PageLedger::Call::acquired, ids(out)});
        return true;
    }
    void retain(PageId page) {
        if (PageLedger::now(ledger_->throw_from_retain_in)) throw SourceFailed();
        if (refs(page) == 0) ++ledger_->wrong_calls;
        ++ledger_->holds.at(index_of(page));
        ledger_->records.push_back({PageLedger::Call::retained, {page}});
    }
    void release(std::span<const PageId> pages) {
        for (const PageId page : pages) {
            if (refs(page) == 0) {
                ++ledger_->wrong_calls;
            } else {
                --ledger_->holds[index_of(page)];
            }
        }
        ledger_->records.push_back({PageLedger::Call::released, ids(pages)});
    }
    [[nodiscard]] std::uint32_t refs(PageId page) const {
        return ledger_->holds.at(index_of(page));
    }
    [[nodiscard]] std::size_t free_pages() const noexcept { return ledger_->free(); }
    [[nodiscard]] std::size_t capacity_pages() const noexcept { return ledger_->holds.size(); }

  private:
    PageLedger* ledger_;
};

}  // namespace kvstem_test
