// SPDX-License-Identifier: MIT
// The tokenizer: merges as it should, gives every text back, and survives damaged files.

#include "kvstem/reference/tokenizer.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "catch.hpp"
#include "kvstem/reference/random.hpp"
#include "support/reference.hpp"
#include "support/test_data.hpp"

using namespace kvstem;
using namespace kvstem::reference;
using support::refusal;

namespace {

struct Piece {
    std::string text;
    float score;
};

/// The 259 fixed pieces and then these.
std::vector<std::byte> file_of(const std::vector<Piece>& pieces, std::int32_t longest = 16) {
    support::Bytes file;
    file.add(longest);
    const auto add = [&](const std::string& text, float score) {
        file.add(score).add(static_cast<std::int32_t>(text.size())).add(text);
    };
    add("<unk>", 0);
    add("\n<s>\n", 0);
    add("\n</s>\n", 0);
    for (int byte = 0; byte < 256; ++byte) {
        char name[8];
        std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(byte));
        add(name, 0);
    }
    for (const Piece& piece : pieces) add(piece.text, piece.score);
    return file.data;
}

/// ids:  259 " "  260 a  261 b  262 c  263 ab  264 bc  265 bca  266 aa  267 é
const std::vector<Piece> pieces{{" ", -9},  {"a", -9},   {"b", -9},  {"c", -9},       {"ab", -2},
                                {"bc", -1}, {"bca", -3}, {"aa", -4}, {"\xC3\xA9", -9}};

Tokenizer small_tokenizer() {
    return Tokenizer::parse(file_of(pieces), 259 + pieces.size());
}

std::vector<Token> encode(const Tokenizer& tokenizer, const std::string& text) {
    return tokenizer.encode(text, SequenceStart::omit);
}

/// The merging as it is usually written: look at all neighbours, merge the best, start over.
std::vector<Token> merge_naively(const Tokenizer& tokenizer, const std::vector<Piece>& all,
                                 std::vector<Token> parts) {
    for (;;) {
        float best_score = -std::numeric_limits<float>::infinity();
        std::size_t best = parts.size();
        Token merged = 0;
        for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
            if (parts[i] < 259 || parts[i + 1] < 259) continue;
            const std::string text = tokenizer.piece(parts[i]) + tokenizer.piece(parts[i + 1]);
            for (std::size_t id = 0; id < all.size(); ++id) {
                if (all[id].text != text) continue;
                if (all[id].score > best_score) {
                    best_score = all[id].score;
                    best = i;
                    merged = static_cast<Token>(259 + id);
                }
                break;
            }
        }
        if (best == parts.size()) return parts;
        parts[best] = merged;
        parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
}

}  // namespace

TEST_CASE("the neighbours whose joined piece scores highest are merged first") {
    const Tokenizer tokenizer = small_tokenizer();
    using Tokens = std::vector<Token>;
    CHECK(encode(tokenizer, "ab") == Tokens{259, 263});
    CHECK(encode(tokenizer, "abc") == Tokens{259, 260, 264});   // bc before ab
    CHECK(encode(tokenizer, "abca") == Tokens{259, 260, 265});  // and then bc + a
}

TEST_CASE("of equal scores the leftmost neighbours are merged first") {
    using Tokens = std::vector<Token>;
    CHECK(encode(small_tokenizer(), "aaa") == Tokens{259, 266, 260});
    CHECK(encode(small_tokenizer(), "aaaaa") == Tokens{259, 266, 266, 260});
}

TEST_CASE("merging with a heap gives what merging by rescanning gives") {
    // Many pieces over two letters, scores with ties.
    std::vector<Piece> dense{{" ", 0}, {"x", 0}, {"y", 0}};
    SplitMix64 random(5);
    for (std::size_t length = 2; length <= 5; ++length) {
        for (std::uint64_t bits = 0; bits < 1u << length; ++bits) {
            if (random.next() % 3 == 0) continue;
            std::string text;
            for (std::size_t i = 0; i < length; ++i) text += (bits >> i & 1) != 0 ? 'x' : 'y';
            dense.push_back({text, -static_cast<float>(random.next() % 7)});
        }
    }
    const Tokenizer tokenizer = Tokenizer::parse(file_of(dense), 259 + dense.size());
    for (int round = 0; round < 60; ++round) {
        std::string text;
        std::vector<Token> parts{259};
        for (std::uint64_t n = random.next() % 40; n > 0; --n) {
            const std::uint64_t kind = random.next() % 20;
            text += kind == 0 ? '!' : kind % 2 == 0 ? 'x' : 'y';
            parts.push_back(kind == 0 ? '!' + 3 : kind % 2 == 0 ? 260 : 261);
        }
        if (text.empty()) parts.clear();
        INFO(text);
        REQUIRE(encode(tokenizer, text) == merge_naively(tokenizer, dense, parts));
    }
}

TEST_CASE("characters that are no piece become their bytes") {
    using Tokens = std::vector<Token>;
    const Tokenizer tokenizer = small_tokenizer();
    CHECK(encode(tokenizer, "\xC3\xA9") == Tokens{259, 267});                 // é, a piece
    CHECK(encode(tokenizer, "\xC3\xA8") == Tokens{259, 0xC3 + 3, 0xA8 + 3});  // è, none
    CHECK(encode(tokenizer, "a\xFF") == Tokens{259, 260, 0xFF + 3});          // no UTF-8
    CHECK(encode(tokenizer, std::string("\0", 1)) == Tokens{259, 3});
}

TEST_CASE("a sequence may start with its mark, and an empty text has no tokens of its own") {
    using Tokens = std::vector<Token>;
    const Tokenizer tokenizer = small_tokenizer();
    CHECK(tokenizer.encode("a", SequenceStart::mark) == Tokens{1, 259, 260});
    CHECK(tokenizer.encode("", SequenceStart::mark) == Tokens{1});
    CHECK(tokenizer.encode("", SequenceStart::omit).empty());
}

TEST_CASE("text that spells a control or byte token stays text") {
    const Tokenizer tokenizer = small_tokenizer();
    for (const std::string text : {"\n<s>\n", "<0x41>", "<unk>"}) {
        for (const Token token : encode(tokenizer, text)) CHECK(token > 2);
        CHECK(tokenizer.decode(tokenizer.encode(text, SequenceStart::mark)) == text);
        CHECK(encode(tokenizer, text).size() == text.size() + 1);
    }
}

TEST_CASE("decoding gives back any text that was encoded") {
    const Tokenizer tokenizer = small_tokenizer();
    SplitMix64 random(3);
    std::vector<std::string> texts{"abc",      " abc", "  a", "h\xC3\xA9llo", "\xF0\x9F\x98\x80!",
                                   "\xE2\x82", ""};
    for (int i = 0; i < 50; ++i) {
        std::string bytes;
        for (std::uint64_t n = random.next() % 30; n > 0; --n) {
            bytes += static_cast<char>(random.next() % 256);
        }
        texts.push_back(bytes);
    }
    for (const std::string& text : texts) {
        CHECK(tokenizer.decode(tokenizer.encode(text, SequenceStart::mark)) == text);
        const std::string spaced = text.empty() ? "" : " " + text;
        CHECK(tokenizer.decode(encode(tokenizer, text)) == spaced);
    }
}

TEST_CASE("tokens outside the vocabulary are refused by number") {
    const Tokenizer tokenizer = small_tokenizer();
    CHECK_THAT(refusal<InvalidArgument>([&] { (void)tokenizer.piece(-1); }),
               ContainsSubstring("token -1"));
    const std::vector<Token> beyond{259, 268};
    CHECK_THAT(refusal<InvalidArgument>([&] { (void)tokenizer.decode(beyond); }),
               ContainsSubstring("token 268 is outside the 268 pieces"));
}

TEST_CASE("a tokenizer file cut at any byte is refused") {
    const std::vector<std::byte> file = file_of(pieces);
    for (std::size_t n = 0; n < file.size(); ++n) {
        const std::vector<std::byte> cut(file.begin(),
                                         file.begin() + static_cast<std::ptrdiff_t>(n));
        INFO("cut to " << n << " bytes");
        REQUIRE_THAT(refusal<BadFormat>([&] { (void)Tokenizer::parse(cut, 268); }),
                     StartsWith("tokenizer: "));
    }
}

TEST_CASE("a tokenizer file with flipped bits is read or refused, never worse") {
    const std::vector<std::byte> file = file_of(pieces);
    std::size_t refused = 0;
    for (std::size_t bit = 0; bit < file.size() * 8; bit += 7) {
        std::vector<std::byte> damaged = file;
        damaged[bit / 8] ^= std::byte{1} << (bit % 8);
        try {
            const Tokenizer tokenizer = Tokenizer::parse(damaged, 268);
            // Pieces may have changed, but whatever is encoded is in the vocabulary.
            (void)tokenizer.decode(encode(tokenizer, "abcaab"));
        } catch (const BadFormat&) {
            ++refused;
        }
    }
    CHECK(refused > 100);
}

TEST_CASE("a tokenizer file refuses what cannot be, by value") {
    const auto refused = [](const std::vector<std::byte>& file, std::size_t vocab_size) {
        return refusal<BadFormat>([&] { (void)Tokenizer::parse(file, vocab_size); });
    };
    CHECK_THAT(refused(file_of(pieces), 267), ContainsSubstring("after the last of 267 tokens"));
    CHECK_THAT(refused(file_of(pieces), 269), ContainsSubstring("ends inside a score"));
    CHECK_THAT(refused(file_of(pieces, 4), 268),
               ContainsSubstring("token 0 has length 5, longest is 4"));
    CHECK_THAT(refused(file_of({{"q", std::numeric_limits<float>::quiet_NaN()}}), 260),
               ContainsSubstring("score of token 259"));
    support::Bytes negative;
    negative.add(8).add(0.0f).add(-1);
    CHECK_THAT(refused(negative.data, 300), ContainsSubstring("token 0 has length -1"));
    support::Bytes huge;
    huge.add(INT32_MAX).add(0.0f).add(INT32_MAX);
    CHECK_THAT(refused(huge.data, 300), ContainsSubstring("ends inside a piece"));
    CHECK_THAT(refusal<InvalidArgument>([] { (void)Tokenizer::parse({}, 258); }),
               ContainsSubstring("vocab_size is 258"));
    CHECK_THROWS_AS(Tokenizer::load("no/such/tokenizer.bin", 512), InvalidArgument);
}

TEST_CASE("of equal pieces the lower id is found") {
    const Tokenizer tokenizer = Tokenizer::parse(file_of({{" ", 0}, {"z", 0}, {"z", 5}}), 262);
    CHECK(encode(tokenizer, "z") == std::vector<Token>{259, 260});
}

TEST_CASE("the real tokenizer gives back any text") {
    const auto path = support::test_data("models/tok512.bin");
    if (!path) KVSTEM_SKIP(support::no_test_data);
    const Tokenizer tokenizer = Tokenizer::load(*path, 512);
    for (const std::string text :
         {"Once upon a time, there was a little girl named Lily.", "\xE2\x82\xAC 5 \xE2\x84\xA2",
          "line\nline\n", "na\xC3\xAFve \xE6\x97\xA5\xE6\x9C\xAC", "<s> </s> <0x0A>", "   "}) {
        INFO(text);
        CHECK(tokenizer.decode(tokenizer.encode(text, SequenceStart::mark)) == text);
    }
    // Streaming token by token prints the same text.
    const std::string text = "They saw a big dog.";
    const auto tokens = tokenizer.encode(text, SequenceStart::mark);
    std::string streamed;
    for (std::size_t i = 1; i < tokens.size(); ++i) {
        streamed += tokenizer.piece_after(tokens[i - 1], tokens[i]);
    }
    CHECK(streamed == text);
}
