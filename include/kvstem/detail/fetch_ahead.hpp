// SPDX-License-Identifier: MIT
// A prefetch that is not optimised away.
#pragma once

#include "../config.hpp"

namespace kvstem::inline KVSTEM_ABI::detail {

/// Asks the processor for the cache line at a place that will be read soon; harmless at any
/// address. The empty statement is what keeps it: g++ 12 takes a function that only prefetches for
/// one without any effect, and drops the calls of it (a disassembly without `prefetch` in it shows
/// that; with it, evicting from a large tree takes half the time).
inline void fetch_ahead(const void* place) noexcept {
    __builtin_prefetch(place);
    asm volatile("");
}

}  // namespace kvstem
