// SPDX-License-Identifier: MIT
// Pictures of a cache, as text and as Graphviz.

#include "kvstem/picture.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "catch.hpp"
#include "kvstem/radix_cache.hpp"

using kvstem::Namespace;
using kvstem::PagePool;
using kvstem::RadixCache;
using kvstem::to_dot;
using kvstem::to_text;
using namespace std::string_view_literals;

namespace {

using Tokens = std::vector<kvstem::Token>;
using Cache = RadixCache<>;

/// Computes a prompt and publishes it.
template <class AnyCache, class T>
typename AnyCache::Lease publish(AnyCache& cache, const std::vector<T>& prompt,
                                 const Namespace& name = {}) {
    auto [admission, lease] = cache.acquire(prompt, name);
    REQUIRE(admission == kvstem::Admission::granted);
    lease.wrote(std::span<const T>(prompt).subspan(lease.adopted()));
    lease.publish();
    return std::move(lease);
}

/// Two trees: one with a fork that is pinned on one side, one of a namespace that needs escaping.
struct SmallCache {
    Cache cache{{.page_tokens = 2}, PagePool(16)};
    Cache::Lease lease;

    explicit SmallCache(const Namespace& name) {
        publish(cache, Tokens{1, 2, 3, 4, 5, 6, 7});
        publish(cache, Tokens{9, 9}, name);
        lease = publish(cache, Tokens{1, 2, 3, 4, -8, 8});
    }
};

/// P = 1: a request that publishes after each of its tokens leaves a chain of as many nodes.
void publish_chain(Cache& cache, std::size_t length) {
    const Tokens prompt(length, 1);
    auto [admission, lease] = cache.acquire(prompt);
    REQUIRE(admission == kvstem::Admission::granted);
    for (std::size_t i = 0; i < length; ++i) {
        lease.wrote(std::span(prompt).subspan(i, 1));
        lease.publish();
    }
}

std::size_t lines(const std::string& text) {
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace

TEST_CASE("a picture as text shows every tree with ranges, tokens, pages and pins") {
    const SmallCache small({.adapter = "legal-lora", .version = "2"});
    CHECK(to_text(small.cache) ==
          "5 pages in 4 nodes, 3 pages pinned, 11 pages free, page size 2\n"
          "default namespace\n"
          "  [0, 4) tokens 1 2 3 4, pages 0 1, pinned\n"
          "    [4, 6) tokens -8 8, page 4, pinned\n"
          "    [4, 6) tokens 5 6, page 2\n"
          "adapter \"legal-lora\", version \"2\"\n"
          "  [0, 2) tokens 9 9, page 3\n");
}

TEST_CASE("a picture as Graphviz shows the same, with names escaped") {
    const SmallCache small({.adapter = "a \"b\" \\n", .salt = "&lt;\n"});
    CHECK(to_dot(small.cache) ==
          R"(digraph kvstem {
  label="5 pages in 4 nodes, 3 pages pinned, 11 pages free, page size 2";
  rankdir=LR;
  node [shape=box, fontname="monospace"];
  n1 [shape=ellipse, label="default namespace"];
  n5 [label="[0, 4)\ntokens 1 2 3 4\npages 0 1", style=filled, fillcolor=gold];
  n1 -> n5;
  n6 [label="[4, 6)\ntokens -8 8\npage 4", style=filled, fillcolor=gold];
  n5 -> n6;
  n2 [label="[4, 6)\ntokens 5 6\npage 2"];
  n5 -> n2;
  n3 [shape=ellipse, label="adapter \"a \\\"b\\\" \\\\n\", salt \"&amp;lt;\\x0a\""];
  n4 [label="[0, 2)\ntokens 9 9\npage 3"];
  n3 -> n4;
}
)");
}

TEST_CASE("an empty cache has a picture") {
    const Cache cache({.page_tokens = 4}, PagePool(3));
    CHECK(to_text(cache) == "0 pages in 0 nodes, 0 pages pinned, 3 pages free, page size 4\n");
    CHECK_THAT(to_dot(cache), StartsWith("digraph kvstem {\n") && EndsWith(";\n}\n"));
}

TEST_CASE("equal caches have equal pictures") {
    const SmallCache one({.salt = "s"});
    const SmallCache other({.salt = "s"});
    CHECK(to_text(one.cache) == to_text(other.cache));
    CHECK(to_dot(one.cache) == to_dot(other.cache));
}

TEST_CASE("a picture leaves a cache as it is", "[M2]") {
    const SmallCache small({.salt = "s"});
    const std::string before = to_text(small.cache);
    CHECK_FALSE(to_dot(small.cache).empty());
    CHECK(to_text(small.cache) == before);
    CHECK(small.cache.audit().ok());
    CHECK(small.cache.stats().hits == 1);
}

TEST_CASE("long nodes are shortened in the middle, to as much as is asked for") {
    Cache cache({.page_tokens = 1}, PagePool(32));
    publish(cache, Tokens{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
    const auto line = [&](std::size_t tokens, std::size_t pages) {
        const std::string text = to_text(cache, {.most_tokens = tokens, .most_pages = pages});
        return text.substr(text.find('['));
    };
    CHECK(line(8, 8) == "[0, 12) tokens 0 1 2 3 ... 8 9 10 11, pages 0 1 2 3 ... 8 9 10 11\n");
    CHECK(line(3, 1) == "[0, 12) tokens 0 1 ... 11, pages 0 ...\n");
    CHECK(line(12, 0) == "[0, 12) tokens 0 1 2 3 4 5 6 7 8 9 10 11, pages ...\n");
}

TEST_CASE("nodes beyond the limit are counted instead of shown") {
    const SmallCache small({.adapter = "x"});
    CHECK_THAT(to_text(small.cache, {.most_nodes = 2}),
               EndsWith("default namespace\n"
                        "  [0, 4) tokens 1 2 3 4, pages 0 1, pinned\n"
                        "    [4, 6) tokens -8 8, page 4, pinned\n"
                        "... and 2 nodes more\n"));
    CHECK_THAT(to_text(small.cache, {.most_nodes = 4}), EndsWith("tokens 9 9, page 3\n"));
    CHECK_THAT(to_dot(small.cache, {.most_nodes = 0}),
               EndsWith("fontname=\"monospace\"];\n"
                        "  more [shape=plaintext, label=\"... and 4 nodes more\"];\n}\n"));
}

TEST_CASE("tokens are printed as a callable says, on one line and as valid UTF-8") {
    const SmallCache small({});
    const auto piece = [](kvstem::Token token) -> std::string {
        switch (token) {
            case 1:
                return "\"Hi\"";
            case 2:
                return "\n";
            case 3:
                return "\xC3\xBC";
            case 4:
                return "\xC3";
            default:
                return std::to_string(token) + "\x7F\\";
        }
    };
    CHECK_THAT(to_text(small.cache, {}, piece),
               ContainsSubstring(R"([0, 4) tokens \"Hi\" \x0a ü \xc3, pages 0 1)") &&
                   ContainsSubstring(R"([4, 6) tokens 5\x7f\\ 6\x7f\\, page 2)"));
    CHECK_THAT(to_dot(small.cache, {}, piece),
               ContainsSubstring(R"(tokens \\\"Hi\\\" \\x0a ü \\xc3\npages 0 1)"));
}

TEST_CASE("tokens that are no numbers are printed by a callable") {
    struct Patch {
        int row, column;
        bool operator==(const Patch&) const = default;
    };
    static_assert(!kvstem::token_text<kvstem::TokenNumber, Patch>);
    RadixCache<PagePool, kvstem::LeastRecentlyUsed, Patch> cache({.page_tokens = 1}, PagePool(4));
    publish(cache, std::vector<Patch>{{1, 2}, {3, 4}});
    const auto text = [](const Patch& patch) {
        return std::to_string(patch.row) + ":" + std::to_string(patch.column);
    };
    CHECK_THAT(to_text(cache, {}, text), EndsWith("[0, 2) tokens 1:2 3:4, pages 0 1\n"));
}

TEST_CASE("what a clear took out of reach is not in the picture", "[L5]") {
    SmallCache small({});
    small.cache.clear();
    CHECK(to_text(small.cache) ==
          "0 pages in 0 nodes, 0 pages pinned, 13 pages free, page size 2\n");
}

TEST_CASE("a chain of a million nodes has a picture, without recursion", "[C17][R3]") {
    constexpr std::size_t length = 1'000'000;
    Cache cache({.page_tokens = 1}, PagePool(length));
    publish_chain(cache, length);
    REQUIRE(cache.stats().nodes == length + 1);

    const std::string text = to_text(cache);
    CHECK(lines(text) == length + 2);
    CHECK_THAT(text.substr(0, 160), StartsWith("1000000 pages in 1000000 nodes, 0 pages pinned, "
                                               "0 pages free, page size 1\n"
                                               "default namespace\n"
                                               "  [0, 1) token 1, page 0\n"
                                               "    [1, 2) token 1, page 1\n"));
    const std::string indent(32, ' ');
    CHECK_THAT(text.substr(text.size() - 150),
               EndsWith("\n" + indent + "depth 1000000: [999999, 1000000) token 1, page 999999\n"));
    CHECK(text.find("\n" + indent + "[15, 16) token 1, page 15\n" + indent + "depth 17: ") !=
          std::string::npos);

    const std::string dot = to_dot(cache);
    CHECK(lines(dot) == 2 * length + 6);
    CHECK_THAT(to_dot(cache, {.most_nodes = 10}), ContainsSubstring("and 999990 nodes more"));
}
