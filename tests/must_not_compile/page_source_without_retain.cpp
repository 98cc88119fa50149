// SPDX-License-Identifier: MIT
// expect: retain
// An allocator that cannot count a second owner is no page source: forks and the tree share pages.

#include <cstddef>
#include <cstdint>
#include <span>

#include "kvstem/radix_cache.hpp"

struct Pages {
    bool acquire(std::span<kvstem::PageId>) { return false; }
#ifndef MUST_NOT_COMPILE
    void retain(kvstem::PageId) {}
#endif
    void release(std::span<const kvstem::PageId>) {}
    [[nodiscard]] std::uint32_t refs(kvstem::PageId) const { return 0; }
    [[nodiscard]] std::size_t free_pages() const noexcept { return 0; }
    [[nodiscard]] std::size_t capacity_pages() const noexcept { return 0; }
};

kvstem::RadixCache<Pages>* cache;
