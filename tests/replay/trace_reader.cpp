// SPDX-License-Identifier: MIT
// Reading traces: both forms, and lines that are not what they should be.

#include <cstddef>
#include <string>
#include <vector>

#include "catch.hpp"
#include "kvstem/replay/json_line.hpp"
#include "kvstem/replay/trace.hpp"
#include "support/traces.hpp"

using namespace kvstem_test;
using kvstem::BadFormat;
using kvstem::replay::BadLines;

namespace {
std::vector<int> path(const Trace& trace, std::size_t request) {
    const auto blocks = trace.path(trace.requests.at(request));
    return {blocks.begin(), blocks.end()};
}
}  // namespace

TEST_CASE("hash_ids are numbered by prefix") {
    const Trace trace = trace_of(
        "{\"timestamp\": 0, \"input_length\": 1300, \"output_length\": 5, \"hash_ids\": [90, 7, "
        "8]}\n"
        "{\"hash_ids\":[90,7,9],\"input_length\":1536,\"tag\":3}\n"
        "\n"
        "{\"hash_ids\": [], \"input_length\": 0}\r\n"
        "{\"hash_ids\": [7]}\n");
    REQUIRE(trace.requests.size() == 4);
    CHECK(path(trace, 0) == std::vector{0, 1, 2});
    CHECK(path(trace, 1) == std::vector{0, 1, 3});
    CHECK(path(trace, 2).empty());
    CHECK(path(trace, 3) == std::vector{4});  // the same id after nothing is another prefix
    CHECK(trace.distinct_blocks == 5);
    CHECK(trace.block_tokens == 512);
    CHECK(trace.requests[0].tokens == 1300);
    CHECK(trace.has_partial_tail(trace.requests[0]));
    CHECK_FALSE(trace.has_partial_tail(trace.requests[1]));
    CHECK(trace.requests[1].tag == 3);
    CHECK(trace.requests[3].tokens == 512);
    CHECK(trace.longest_request_blocks() == 3);
}

TEST_CASE("tokens are cut into blocks, the last of which may be partial") {
    const Trace trace = trace_of(
        "{\"tokens\":[1,2,3,4,5]}\n{\"tokens\":[1,2,3,4,6]}\n{\"tokens\":[1,2,3]}\n"
        "{\"tokens\":[3,4]}\n",
        {.plain_block_tokens = 2});
    CHECK(path(trace, 0) == std::vector{0, 1, 2});
    CHECK(path(trace, 1) == std::vector{0, 1, 3});
    CHECK(path(trace, 2) == std::vector{0, 4});  // [3] alone is not [3, 4]
    CHECK(path(trace, 3) == std::vector{5});
    CHECK(trace.block_tokens == 2);
    CHECK(trace.requests[0].tokens == 5);
    CHECK(trace.has_partial_tail(trace.requests[0]));
    CHECK_FALSE(trace.has_partial_tail(trace.requests[3]));
}

TEST_CASE("ids may be any 64 bits, and other members any JSON") {
    const Trace trace = trace_of(
        "{\"a\\u00e9\\\"\":{\"b\":[1.5e-3,true,null,{}, [ ]],\"c\":\"\\n\"}, \"hash_ids\" : [ "
        "18446744073709551615 , -9223372036854775808, 0 ] , \"z\": -0.0E+1}\n");
    CHECK(path(trace, 0) == std::vector{0, 1, 2});
    const std::string deep =
        "{\"x\":" + std::string(100'000, '[') + std::string(100'000, ']') + ",\"hash_ids\":[1]}";
    CHECK(trace_of(deep).requests.size() == 1);
}

TEST_CASE("a malformed line is refused with its number") {
    const char* const bad[] = {
        "{",
        "[1]",
        "hash_ids",
        "{}",
        "{\"hash_ids\":[1,2]",
        "{\"hash_ids\":[1,]}",
        "{\"hash_ids\":[1 2]}",
        "{\"hash_ids\":[1.5]}",
        "{\"hash_ids\":[1e3]}",
        "{\"hash_ids\":[\"1\"]}",
        "{\"hash_ids\":[null]}",
        "{\"hash_ids\":7}",
        "{\"hash_ids\":[01]}",
        "{\"hash_ids\":[-]}",
        "{\"hash_ids\":[+1]}",
        "{\"hash_ids\":[18446744073709551616]}",
        "{\"hash_ids\":[-9223372036854775809]}",
        "{\"hash_ids\":[1]} x",
        "{\"hash_ids\":[1]}{\"hash_ids\":[1]}",
        "{\"hash_ids\":[1],\"hash_ids\":[1]}",
        "{\"hash_ids\":[1],}",
        "{hash_ids:[1]}",
        "{\"hash_ids\":[1],\"input_length\":-1}",
        "{\"hash_ids\":[1],\"input_length\":\"9\"}",
        "{\"hash_ids\":[1],\"tag\":-1}",
        "{\"hash_ids\":[1],\"x\":tru}",
        "{\"hash_ids\":[1],\"x\":01}",
        "{\"hash_ids\":[1],\"x\":1.}",
        "{\"hash_ids\":[1],\"x\":1e+}",
        "{\"hash_ids\":[1],\"x\":-}",
        "{\"hash_ids\":[1E3]}",
        "{\"hash_ids\":[1],\"tag\":4294967296}",
        "{\"hash_ids\":[1],\"x\":\"\\q\"}",
        "{\"hash_ids\":[1],\"x\":\"\\u12g4\"}",
        "{\"hash_ids\":[1],\"x\":\"open}",
        "{\"hash_ids\":[1],\"x\":[1}}",
        "{\"hash_ids\":[1],\"x\":{\"y\"}}",
        "{\"hash_ids\":[1],\"x\":\"\t\"}",
        "{\"tokens\":[1]}",  // after hash_ids
    };
    for (const char* line : bad) {
        INFO(line);
        const std::string lines =
            std::string("{\"hash_ids\":[1]}\n\n") + line + "\n{\"hash_ids\":[1]}\n";
        CHECK_THROWS_WITH(trace_of(lines), StartsWith("line 3: "));
        CHECK_THROWS_AS(trace_of(lines), BadFormat);
        const Trace trace = trace_of(lines, {.bad_lines = BadLines::skip});
        CHECK(trace.requests.size() == 2);
        CHECK(trace.distinct_blocks == 1);
        CHECK(trace.skipped_lines == std::vector<std::size_t>{3});
    }
}

TEST_CASE("every cut of a good line is a bad line") {
    const std::string line =
        "{\"hash_ids\":[1,23],\"x\":{\"y\":[-1.5e+7,\"\\u00e9\"]},\"input_length\":900}";
    REQUIRE(trace_of(line).requests.size() == 1);
    for (std::size_t n = 1; n < line.size(); ++n) {
        INFO(line.substr(0, n));
        CHECK_THROWS_AS(trace_of(line.substr(0, n)), BadFormat);
    }
}

TEST_CASE("a block of no tokens is refused") {
    CHECK_THROWS_AS(trace_of("", {.hash_block_tokens = 0}), kvstem::InvalidArgument);
    CHECK_THROWS_AS(trace_of("", {.plain_block_tokens = 0}), kvstem::InvalidArgument);
}

TEST_CASE("sizes whose sums could wrap are refused") {
    CHECK_THROWS_AS(trace_of("", {.hash_block_tokens = ~std::size_t{0}}), kvstem::InvalidArgument);
    CHECK_THROWS_AS(trace_of("", {.plain_block_tokens = 0x8000'0000}), kvstem::InvalidArgument);
    CHECK_NOTHROW(trace_of("", {.hash_block_tokens = 0x7FFF'FFFF}));
    CHECK_THROWS_AS(trace_of(R"({"hash_ids": [1], "input_length": 1099511627777})"),
                    kvstem::BadFormat);
    CHECK(trace_of(R"({"hash_ids": [1], "input_length": 1099511627776})").requests[0].tokens ==
          1099511627776u);
}
