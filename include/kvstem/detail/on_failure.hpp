// SPDX-License-Identifier: MIT
// What is done about exceptions that pass through: the change is undone, or the message added to.
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

/// Runs `action`; if it throws an `E`, runs `handle` on that. Without exceptions there is nothing
/// to handle either.
template <class E, class Action, class Handle>
void on_error(Action&& action, Handle&& handle) {
#if defined(__cpp_exceptions)
    try {
        action();
    } catch (const E& error) {
        handle(error);
    }
#else
    action();
    (void)handle;
#endif
}

}  // namespace kvstem
