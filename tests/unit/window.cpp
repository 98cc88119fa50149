// SPDX-License-Identifier: MIT
// Windows with holes and snapshots whose window has slid, against the plain definition.

#include "kvstem/window.hpp"

#include <cstddef>
#include <limits>
#include <vector>

#include "catch.hpp"
#include "support/reference.hpp"

using kvstem::first_position_in_window;
using kvstem::longest_usable_length;
using kvstem::longest_window_cut;

namespace {

using Present = std::vector<bool>;

std::size_t usable(const Present& present, std::size_t window, std::size_t page) {
    return longest_usable_length(
        present.size(), [&](std::size_t i) { return bool(present[i]); }, window, page);
}

/// The definition, position by position.
std::size_t usable_by_definition(const Present& present, std::size_t window, std::size_t page) {
    for (std::size_t n = present.size() * page; n > 0; n -= page) {
        bool whole = true;
        // Position n is computed from n − W + 1 … n; those before n have to be there. A page that
        // nobody reads (W = 1) must be there as well, or the length would end in a hole.
        for (std::size_t p = 0; p < n; ++p) {
            const bool read = window == 0 || p + window > n || p + page >= n;
            whole = whole && (!read || present[p / page]);
        }
        if (whole) return n;
    }
    return 0;
}

}  // namespace

TEST_CASE("holes behind the window do no harm, holes in it do", "[window][C32]") {
    CHECK(usable({true, false, true, true, true}, 5, 2) == 10);
    CHECK(usable({true, false, true}, 5, 2) == 2);
    CHECK(usable({false, true, true}, 5, 2) == 6);
    CHECK(usable({true, true, false, true, false, true}, 5, 2) == 4);
}

TEST_CASE("without a window everything counts up to the first hole", "[window]") {
    CHECK(usable({true, true, false, true}, 0, 16) == 32);
    CHECK(usable({false, true, true}, 0, 16) == 0);
    CHECK(usable({}, 5, 2) == 0);
}

TEST_CASE("the usable length is that of the definition, for all pages up to ten", "[window][C32]") {
    for (std::size_t count = 0; count <= 10; ++count) {
        for (std::size_t bits = 0; bits < std::size_t{1} << count; ++bits) {
            Present present;
            for (std::size_t i = 0; i < count; ++i) present.push_back((bits >> i & 1u) != 0);
            for (const std::size_t window : {0u, 1u, 2u, 3u, 5u, 8u, 100u}) {
                for (const std::size_t page : {1u, 2u, 3u}) {
                    if (usable(present, window, page) !=
                        usable_by_definition(present, window, page)) {
                        FAIL_CHECK(count << " pages " << bits << ", W " << window << ", P "
                                         << page);
                    }
                }
            }
        }
    }
    SUCCEED();
}

TEST_CASE("sizes that cannot be counted are refused by name", "[window]") {
    using kvstem::InvalidArgument;
    const auto there = [](std::size_t) { return true; };
    CHECK_THAT(
        support::refusal<InvalidArgument>([&] { (void)longest_usable_length(3, there, 5, 0); }),
        ContainsSubstring("0 tokens"));
    const std::size_t most = std::numeric_limits<std::size_t>::max();
    CHECK_THROWS_AS(longest_usable_length(most, there, 5, 2), InvalidArgument);
}

TEST_CASE("a position reads itself and the W - 1 before it", "[window]") {
    CHECK(first_position_in_window(10, 4) == 7);
    CHECK(first_position_in_window(3, 4) == 0);
    CHECK(first_position_in_window(4, 4) == 1);
    CHECK(first_position_in_window(10, 0) == 0);
    CHECK(first_position_in_window(10, 1) == 10);
    CHECK(first_position_in_window(0, 1) == 0);
}

TEST_CASE("a snapshot is cut only where its window reaches back", "[window][S6][C30][C31]") {
    // Window 4, ten positions of which the last three are kept: nothing that branches at 6.
    CHECK(longest_window_cut(7, 10, 6, 4) == 0);
    CHECK(longest_window_cut(7, 10, 10, 4) == 10);
    CHECK(longest_window_cut(7, 10, 15, 4) == 10);
    CHECK(longest_window_cut(7, 10, 9, 4) == 0);
    // Window 8, five positions, all of them there: any cut, and to be continued where it ends.
    CHECK(longest_window_cut(0, 5, 5, 8) == 5);
    CHECK(longest_window_cut(0, 5, 3, 8) == 3);
    // Two more kept than the window reads: two more cuts.
    CHECK(longest_window_cut(5, 10, 8, 4) == 8);
    CHECK(longest_window_cut(5, 10, 7, 4) == 0);
}
