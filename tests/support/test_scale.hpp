// SPDX-License-Identifier: MIT
// How much more than usual the property tests shall do, and how large the large tests are.
#pragma once

#include <cstddef>
#include <cstdlib>

namespace kvstem_test {

/// KVSTEM_TEST_SCALE, a factor for the number of seeds; 1 when it is not set.
inline unsigned test_scale() {
    const char* scale = std::getenv("KVSTEM_TEST_SCALE");
    const int factor = scale == nullptr ? 1 : std::atoi(scale);
    return factor < 1 ? 1 : static_cast<unsigned>(factor);
}

/// What a size of a million is divided by, so that the large tests take seconds everywhere: nothing
/// in an optimised build, 20 in one without optimisation or with a sanitizer.
#if !defined(__OPTIMIZE__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr std::size_t large_test_divisor = 20;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr std::size_t large_test_divisor = 20;
#else
inline constexpr std::size_t large_test_divisor = 1;
#endif
#else
inline constexpr std::size_t large_test_divisor = 1;
#endif

}  // namespace kvstem_test
