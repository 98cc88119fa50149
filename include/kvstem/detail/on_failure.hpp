// SPDX-License-Identifier: MIT
// Undoing a half-done change: the one place where the library catches.
#pragma once

#include "../config.hpp"

namespace kvstem::inline KVSTEM_ABI::detail {

/// Runs `action`; if it throws, runs `undo` and passes the exception on. Without exceptions there
/// is nothing to undo: what would throw has ended the program.
template <class Action, class Undo>
void on_failure(Action&& action, Undo&& undo) {
#if defined(__cpp_exceptions)
    try {
        action();
    } catch (...) {
        undo();
        throw;
    }
#else
    action();
    (void)undo;
#endif
}

}  // namespace kvstem
