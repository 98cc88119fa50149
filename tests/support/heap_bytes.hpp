// SPDX-License-Identifier: MIT
// How many bytes of heap the whole program holds, where that can be asked.
#pragma once

#include <cstddef>
#include <optional>

#if defined(__SANITIZE_ADDRESS__)
#define KVSTEM_TEST_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KVSTEM_TEST_ASAN 1
#endif
#endif

#ifdef KVSTEM_TEST_ASAN
// g++ has the function but does not install the header that declares it.
extern "C" std::size_t __sanitizer_get_current_allocated_bytes();
#elif defined(__linux__)
#include <malloc.h>
#endif

namespace kvstem_test {

/// Bytes that were allocated and not freed; nothing where neither the sanitizer nor the C library
/// (glibc from 2.33 on) says.
inline std::optional<std::size_t> heap_bytes() {
#ifdef KVSTEM_TEST_ASAN
    return __sanitizer_get_current_allocated_bytes();
#elif defined(__GLIBC_PREREQ)
#if __GLIBC_PREREQ(2, 33)
    const auto info = mallinfo2();
    return info.uordblks + info.hblkhd;
#else
    return std::nullopt;
#endif
#else
    return std::nullopt;
#endif
}

/// What the heap has grown by since its construction; 0 where that cannot be told.
class HeapGrowth {
  public:
    [[nodiscard]] std::size_t bytes() const {
        const auto now = heap_bytes();
        return now && *now > *before_ ? *now - *before_ : 0;
    }

  private:
    std::optional<std::size_t> before_ = heap_bytes();
};

}  // namespace kvstem_test
