// SPDX-License-Identifier: MIT
// expect: PageId
// A number is no page: tokens, positions and pages would be mixed up.

#include <cstdint>

#include "kvstem/page_pool.hpp"

void keep(kvstem::PagePool& pool, std::uint32_t number) {
#ifdef MUST_NOT_COMPILE
    pool.retain(number);
#else
    pool.retain(kvstem::PageId{number});
#endif
}
