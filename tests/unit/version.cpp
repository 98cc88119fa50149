// SPDX-License-Identifier: MIT
// The version is stated once: what the header says is what CMake read and what the namespace is
// called.

#include "kvstem/version.hpp"

#include <string>
#include <type_traits>

#include "catch.hpp"
#include "kvstem/config.hpp"
#include "kvstem/errors.hpp"

TEST_CASE("the version of the headers is the version of the CMake project") {
    const std::string version = std::to_string(KVSTEM_VERSION_MAJOR) + "." +
                                std::to_string(KVSTEM_VERSION_MINOR) + "." +
                                std::to_string(KVSTEM_VERSION_PATCH);
    CHECK(version == KVSTEM_PROJECT_VERSION);
}

// Written out, not built from the macros: a new version has to be noticed here.
TEST_CASE("the inline namespace names the version and the assertion setting") {
#if KVSTEM_ASSERTIONS
    STATIC_REQUIRE(
        std::is_same_v<kvstem::v0_1_0_checked::InvalidArgument, kvstem::InvalidArgument>);
#else
    STATIC_REQUIRE(std::is_same_v<kvstem::v0_1_0::InvalidArgument, kvstem::InvalidArgument>);
#endif
}
