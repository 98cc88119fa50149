// SPDX-License-Identifier: MIT
// Finds files the project does not ship: a real model, traces. KVSTEM_TEST_DATA names their folder.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace support {

/// The path of `name` (such as "models/stories260K.bin") under KVSTEM_TEST_DATA, or nothing if the
/// variable is not set. A file that is missing although the variable is set is still returned:
/// opening it fails then, because a wrong folder must not pass for a skipped test.
///
///     const auto path = support::test_data("models/stories260K.bin");
///     if (!path) KVSTEM_SKIP(support::no_test_data);
inline std::optional<std::string> test_data(const std::string& name) {
    const char* folder = std::getenv("KVSTEM_TEST_DATA");
    if (folder == nullptr || *folder == '\0') return std::nullopt;
    return std::string(folder) + "/" + name;
}

inline constexpr const char* no_test_data = "KVSTEM_TEST_DATA is not set";

}  // namespace support
