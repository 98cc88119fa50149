// SPDX-License-Identifier: MIT
// Room for what a call that must not fail will append.
#pragma once

#include <cstddef>
#include <vector>

#include "../config.hpp"

namespace kvstem::inline KVSTEM_ABI::detail {

/// Makes room for `more` elements. Unlike reserve(size + more), which may allocate exactly that and
/// so at every call, it at least doubles. Throws std::bad_alloc, with nothing changed.
template <class T>
void reserve_more(std::vector<T>& list, std::size_t more) {
    if (list.capacity() - list.size() >= more) return;
    const std::size_t twice = list.capacity() * 2;
    list.reserve(list.size() + more > twice ? list.size() + more : twice);
}

}  // namespace kvstem
