// SPDX-License-Identifier: MIT
// One body, three uses: runs from seeds and replays of a corpus as a test case, and, compiled with
// KVSTEM_FUZZ_TARGET, the entry of a libFuzzer target (tests/run fuzz).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "support/choices.hpp"

#ifndef KVSTEM_FUZZ_TARGET
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "catch.hpp"
#endif

namespace kvstem_test {

/// Plays until the choices have run out; what went wrong, or null.
using Body = const char* (*)(Choices& choices);

inline std::string fault_of(Body body, Choices&& choices) {
    try {
        const char* fault = body(choices);
        return fault == nullptr ? "" : fault;
    } catch (const std::exception& error) {
        return std::string("an exception nobody expected: ") + error.what();
    }
}

/// What went wrong and the operations that led there; empty if nothing did. Operations are only
/// written down when the run has to be told, in a second run; KVSTEM_FUZZ_TRACE prints them as they
/// happen, for runs that crash.
inline std::string fault_of(Body body, std::span<const std::uint8_t> bytes) {
    std::ostream nowhere(nullptr);
    const bool traced = std::getenv("KVSTEM_FUZZ_TRACE") != nullptr;
    if (traced) std::cerr << std::unitbuf;
    std::string fault = fault_of(body, Choices(bytes, traced ? std::cerr : nowhere));
    if (fault.empty()) return fault;
    std::ostringstream operations;
    fault_of(body, Choices(bytes, operations));
    return fault + "; the operations were:\n" + operations.str();
}

#ifndef KVSTEM_FUZZ_TARGET

/// Plays `seeds` seeds of so many bytes each; the first that fails ends the test.
inline void play_seeds(Body body, unsigned seeds, std::size_t bytes_each) {
    for (unsigned seed = 0; seed < seeds; ++seed) {
        const std::string fault = fault_of(body, bytes_of_seed(seed, bytes_each));
        INFO("seed " << seed << ": " << fault);
        REQUIRE(fault.empty());
    }
}

/// Plays every file of tests/fuzz/corpus/<target>.
inline void replay_corpus(const char* target, Body body) {
    namespace fs = std::filesystem;
    const fs::path folder = fs::path(__FILE__).parent_path() / ".." / "fuzz" / "corpus" / target;
    REQUIRE(fs::is_directory(folder));
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    CHECK_FALSE(files.empty());
    for (const fs::path& file : files) {
        std::ifstream in(file, std::ios::binary);
        const std::vector<char> chars{std::istreambuf_iterator<char>(in), {}};
        REQUIRE(in.is_open());
        const std::vector<std::uint8_t> bytes(chars.begin(), chars.end());
        const std::string fault = fault_of(body, bytes);
        INFO(file.filename().string() << ": " << fault);
        CHECK(fault.empty());
    }
}

/// A test case with two sections, or the fuzzer's entry; `target` is the name of the corpus' folder
/// and of the program. A macro because either has to be defined at namespace scope.
#define KVSTEM_FUZZ_TEST(target, body, seeds, bytes_each, name, tags) \
    TEST_CASE(name, tags) {                                           \
        SECTION("from seeds") {                                       \
            ::kvstem_test::play_seeds(body, seeds, bytes_each);       \
        }                                                             \
        SECTION("from the corpus") {                                  \
            ::kvstem_test::replay_corpus(#target, body);              \
        }                                                             \
    }

#else

inline int fuzz(Body body, std::span<const std::uint8_t> bytes) {
    const std::string fault = fault_of(body, bytes);
    if (fault.empty()) return 0;
    std::cerr << fault << '\n';
    std::abort();
}

#define KVSTEM_FUZZ_TEST(target, body, seeds, bytes_each, name, tags)                   \
    extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);  \
    extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) { \
        return ::kvstem_test::fuzz(body, {data, size});                                 \
    }

#endif

}  // namespace kvstem_test
