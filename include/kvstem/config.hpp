// SPDX-License-Identifier: MIT
// Build configuration: the inline namespace, the internal assertion and what happens without
// exceptions.
//
// Every header opens `namespace kvstem::inline KVSTEM_ABI`. The inline namespace carries the
// version and whether internal assertions are on, so that two vendored copies of different
// versions, or two units built with different settings, link side by side instead of sharing code
// silently.
//
// What a user may define before the first include:
//   KVSTEM_ASSERTIONS   1 checks the library's own invariants and aborts when one is broken,
//                       0 does not. Default: 1 unless NDEBUG is defined.
// Bad arguments to the caches, the pool and the engine wrapper are never left to these assertions:
// they throw in every build (errors.hpp). Only RadixTree, the floor below, asserts what it
// requires.
#pragma once

#include "version.hpp"

#ifndef KVSTEM_ASSERTIONS
#ifdef NDEBUG
#define KVSTEM_ASSERTIONS 0
#else
#define KVSTEM_ASSERTIONS 1
#endif
#endif

#define KVSTEM_ABI_NAME_(major, minor, patch, suffix) v##major##_##minor##_##patch##suffix
#define KVSTEM_ABI_NAME(major, minor, patch, suffix) KVSTEM_ABI_NAME_(major, minor, patch, suffix)

#if KVSTEM_ASSERTIONS
#include <cstdio>
#include <cstdlib>
#define KVSTEM_ABI \
    KVSTEM_ABI_NAME(KVSTEM_VERSION_MAJOR, KVSTEM_VERSION_MINOR, KVSTEM_VERSION_PATCH, _checked)
#define KVSTEM_ASSERT(condition)                                                           \
    ((condition) ? void(0)                                                                 \
                 : (std::fprintf(stderr, "%s:%d: kvstem invariant broken: %s\n", __FILE__, \
                                 __LINE__, #condition),                                    \
                    std::abort()))
#else
#define KVSTEM_ABI \
    KVSTEM_ABI_NAME(KVSTEM_VERSION_MAJOR, KVSTEM_VERSION_MINOR, KVSTEM_VERSION_PATCH, )
#define KVSTEM_ASSERT(condition) void(0)
#endif
