// SPDX-License-Identifier: MIT
// What the library throws: one family of exceptions whose messages name the offending value.
//
// Three things can go wrong, and each is told in its own way:
//   - a caller's mistake (a page size of 0, a KV whose length disagrees with its tokens, a lease
//     that
//     was already released) throws one of the types below, in every build, with nothing changed;
//   - a normal outcome (a miss, a full pool, a request that can never fit) is a return value;
//   - a fault of the library itself trips KVSTEM_ASSERT (config.hpp).
// Whatever the user's KV type or the allocator throws passes through unchanged.
//
// Without exceptions (-fno-exceptions) a caller's mistake prints its message and aborts.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "config.hpp"

namespace kvstem::inline KVSTEM_ABI {

/// The base of everything the library throws. The message is stored inline: throwing never
/// allocates, and copying an Error never throws. Messages longer than 255 bytes are cut.
class Error : public std::exception {
  public:
    explicit Error(const char* message) noexcept {
        std::snprintf(message_, sizeof message_, "%s", message);
    }

    [[nodiscard]] const char* what() const noexcept override { return message_; }

  private:
    char message_[256];
};

/// An argument is outside what the call's contract allows.
class InvalidArgument : public Error {
  public:
    using Error::Error;
};

/// A lease or handle is used that holds nothing any more: moved from, released, or of a cache that
/// is gone.
class StaleHandle : public Error {
  public:
    using Error::Error;
};

/// A file or byte stream is not what its format says.
class BadFormat : public Error {
  public:
    using Error::Error;
};

namespace detail {

/// Throws `E` with a printf-formatted message.
/// Kept out of line so that the checks at the call sites stay one compare and one cold jump.
template <class E>
[[noreturn]] __attribute__((noinline, cold, format(printf, 1, 2))) void fail(const char* format,
                                                                             ...) {
    char message[256];
    std::va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
#if defined(__cpp_exceptions)
    throw E(message);
#else
    std::fprintf(stderr, "kvstem: %s\n", message);
    std::abort();
#endif
}

}  // namespace detail

}  // namespace kvstem
