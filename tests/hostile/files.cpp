// SPDX-License-Identifier: MIT
// Damaged files: every cut, every value of every header byte, every flipped bit. What comes back is
// a BadFormat that says what is wrong, or something that can be used.

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "catch.hpp"
#include "kvstem/reference/checkpoint.hpp"
#include "kvstem/reference/decoder.hpp"
#include "kvstem/reference/sampler.hpp"
#include "kvstem/reference/tokenizer.hpp"
#include "kvstem/replay/replay.hpp"
#include "kvstem/replay/trace.hpp"
#include "support/reference.hpp"
#include "support/test_data.hpp"
#include "support/test_scale.hpp"
#include "support/traces.hpp"

using kvstem::BadFormat;
using kvstem::InvalidArgument;
using kvstem::Token;
using namespace kvstem::reference;

namespace {

using Bytes = std::vector<std::byte>;

constexpr std::size_t header_bytes = 28;

/// A vector of its own, so that a read past its end is seen by the address sanitizer.
Bytes first(const Bytes& file, std::size_t n) {
    return {file.begin(), file.begin() + static_cast<std::ptrdiff_t>(n)};
}

/// The smallest model there is, but for two layers and heads: some 100 floats.
Model smallest_model(Classifier classifier) {
    ModelConfig config;
    config.dim = 4;
    config.hidden_dim = 1;
    config.n_layers = 2;
    config.n_heads = 2;
    config.n_kv_heads = 1;
    config.head_size = 2;
    config.vocab_size = 3;
    config.max_context = 3;
    config.classifier = classifier;
    return Model::from_seed(config, 4);
}

/// Refused by name, or a model whose config is what its header says; then it can be run, and its
/// logits are drawn from or refused.
bool is_refused_or_works(const Bytes& file) {
    try {
        const Model model = parse_checkpoint(file);
        Decoder decoder(model);
        ContiguousKv kv(model.config().kv_shape());
        const std::vector<Token> tokens(std::min<std::size_t>(2, model.config().max_context), 0);
        const Logits logits = decoder.forward_batch(tokens, 0, kv, LogitsFor::last_token);
        try {
            const Token token = Sampler(SamplingParams{}).sample(logits.last());
            return token >= 0 && static_cast<std::size_t>(token) < model.config().vocab_size;
        } catch (const InvalidArgument&) {
            return true;  // no numbers to draw from
        }
    } catch (const BadFormat& error) {
        return std::string(error.what()).starts_with("checkpoint: ");
    }
}

/// 259 fixed pieces and a few more; `longest` as it says.
Bytes small_tokenizer_file() {
    support::Bytes file;
    file.add(std::int32_t{8});
    const auto add = [&](const std::string& text, float score) {
        file.add(score).add(static_cast<std::int32_t>(text.size())).add(text);
    };
    for (int id = 0; id < 259; ++id) add("#", 0);
    for (const char* text : {" ", "a", "b", "ab", "aba", " ab"}) add(text, -1);
    return std::move(file.data);
}
constexpr std::size_t small_vocab_size = 259 + 6;

}  // namespace

TEST_CASE("a checkpoint cut at any byte is refused by name", "[hostile][R3]") {
    for (const Classifier classifier : {Classifier::tied, Classifier::separate}) {
        const Bytes file = support::checkpoint_of(smallest_model(classifier));
        REQUIRE(is_refused_or_works(file));
        for (std::size_t n = 0; n < file.size(); ++n) {
            INFO("cut to " << n << " of " << file.size() << " bytes");
            REQUIRE_THROWS_AS(parse_checkpoint(first(file, n)), BadFormat);
        }
    }
}

TEST_CASE("a checkpoint with any byte of its header replaced by any other is refused or works",
          "[hostile][R3]") {
    for (const Classifier classifier : {Classifier::tied, Classifier::separate}) {
        const Bytes file = support::checkpoint_of(smallest_model(classifier));
        std::size_t refused = 0;
        for (std::size_t at = 0; at < header_bytes; ++at) {
            for (unsigned value = 0; value < 256; ++value) {
                Bytes damaged = file;
                damaged[at] = std::byte(value);
                INFO("byte " << at << " is " << value);
                REQUIRE(is_refused_or_works(damaged));
                refused += support::refusal<BadFormat>([&] { (void)parse_checkpoint(damaged); }) !=
                           "not refused";
            }
        }
        // All but the bytes as they were, and shapes that happen to have as many floats.
        CHECK(refused > header_bytes * 255 - 8);
    }
}

TEST_CASE("a checkpoint with any bit of its weights flipped is run, and drawn from or refused",
          "[hostile][R3]") {
    const Bytes file = support::checkpoint_of(smallest_model(Classifier::separate));
    for (std::size_t bit = header_bytes * 8; bit < file.size() * 8; ++bit) {
        Bytes damaged = file;
        damaged[bit / 8] ^= std::byte{1} << (bit % 8);
        INFO("bit " << bit);
        REQUIRE(is_refused_or_works(damaged));
    }
}

TEST_CASE("a real checkpoint cut or flipped in its header is refused", "[hostile][R3]") {
    const auto path = support::test_data("models/stories260K.bin");
    if (!path) KVSTEM_SKIP(support::no_test_data);
    Bytes file = read_file(*path);
    // Every byte of the header, and places of the rest; what is cut off is never copied.
    for (std::size_t n = 0; n < file.size(); n += n < 256 ? 1 : 997) {
        INFO("cut to " << n);
        REQUIRE_THROWS_AS(parse_checkpoint(std::span(file).first(n)), BadFormat);
    }
    for (std::size_t bit = 0; bit < header_bytes * 8; ++bit) {
        file[bit / 8] ^= std::byte{1} << (bit % 8);
        INFO("bit " << bit);
        REQUIRE_THROWS_AS(parse_checkpoint(file), BadFormat);
        file[bit / 8] ^= std::byte{1} << (bit % 8);
    }
    CHECK(parse_checkpoint(file).config().n_layers == 5);
}

TEST_CASE("a damaged file is refused by its path's content, empty ones included", "[hostile]") {
    const auto folder = std::filesystem::temp_directory_path();
    const std::string path = (folder / ("kvstem-hostile-" + std::to_string(getpid()))).string();
    std::ofstream(path, std::ios::binary | std::ios::trunc).close();
    CHECK_THROWS_AS(load_checkpoint(path), BadFormat);
    CHECK_THROWS_AS(Tokenizer::load(path, 300), BadFormat);
    std::remove(path.c_str());
    CHECK_THROWS_AS(load_checkpoint(path), InvalidArgument);
}

TEST_CASE("a tokenizer with any bit flipped is refused, or gives back any text", "[hostile][R3]") {
    const Bytes file = small_tokenizer_file();
    const std::string text = "ab \xC3\xA9\xFF <s> abab";
    REQUIRE(Tokenizer::parse(file, small_vocab_size).vocab_size() == small_vocab_size);
    std::size_t refused = 0;
    for (std::size_t bit = 0; bit < file.size() * 8; ++bit) {
        Bytes damaged = file;
        damaged[bit / 8] ^= std::byte{1} << (bit % 8);
        INFO("bit " << bit);
        try {
            const Tokenizer tokenizer = Tokenizer::parse(damaged, small_vocab_size);
            REQUIRE(tokenizer.decode(tokenizer.encode(text, SequenceStart::mark)) == text);
        } catch (const BadFormat& error) {
            REQUIRE_THAT(error.what(), StartsWith("tokenizer: "));
            ++refused;
        }
    }
    // At least every flip of the 31 lower bits of every length is one that no longer adds up.
    CHECK(refused >= small_vocab_size * 31);
}

TEST_CASE("a tokenizer's first bytes may be anything", "[hostile][R3]") {
    const Bytes file = small_tokenizer_file();
    for (std::size_t at = 0; at < 12; ++at) {
        for (unsigned value = 0; value < 256; ++value) {
            Bytes damaged = file;
            damaged[at] = std::byte(value);
            INFO("byte " << at << " is " << value);
            try {
                const Tokenizer tokenizer = Tokenizer::parse(damaged, small_vocab_size);
                REQUIRE(tokenizer.vocab_size() == small_vocab_size);
            } catch (const BadFormat& error) {
                REQUIRE_THAT(error.what(), StartsWith("tokenizer: "));
            }
        }
    }
}

TEST_CASE("a token outside the vocabulary has no piece, however far outside", "[hostile]") {
    const Tokenizer tokenizer = Tokenizer::parse(small_tokenizer_file(), small_vocab_size);
    for (const Token token : {INT32_MIN, -1, static_cast<Token>(small_vocab_size), INT32_MAX}) {
        CHECK_THROWS_WITH(tokenizer.piece(token), ContainsSubstring(std::to_string(token)));
        CHECK_THROWS_AS(tokenizer.decode(std::vector<Token>{1, token}), InvalidArgument);
    }
}

TEST_CASE("a trace line with any byte replaced by any other is refused by its number or read",
          "[hostile]") {
    using namespace kvstem::replay;
    for (const std::string line :
         {R"({"hash_ids":[1,-23],"x":{"y":[-1.5e+7,"\u00e9",true]},"input_length":900,"tag":3})",
          R"({"tokens":[0,9223372036854775807,-9223372036854775808]})"}) {
        REQUIRE(kvstem_test::trace_of(line).requests.size() == 1);
        for (std::size_t at = 0; at < line.size(); ++at) {
            for (int value = 0; value < 256; ++value) {
                std::string damaged = line;
                damaged[at] = static_cast<char>(value);
                INFO(damaged);
                try {
                    const Trace trace = kvstem_test::trace_of(damaged);
                    // A newline makes two lines of one, and whatever is left must still be valid.
                    REQUIRE(trace.requests.size() == 1);
                    REQUIRE(trace.path(trace.requests[0]).size() == trace.requests[0].blocks);
                } catch (const BadFormat& error) {
                    REQUIRE_THAT(error.what(), StartsWith("line "));
                }
            }
        }
    }
}

TEST_CASE("a trace line a million brackets deep is read past without recursion", "[hostile][R3]") {
    const std::size_t depth = 1'000'000 / kvstem_test::large_test_divisor;
    std::string open = R"({"x":)";
    for (std::size_t i = 0; i < depth; ++i) open += i % 2 == 0 ? "[" : R"({"k":)";
    CHECK_THROWS_AS(kvstem_test::trace_of(open), BadFormat);
    std::string whole = open + "1";
    for (std::size_t i = depth; i-- > 0;) whole += i % 2 == 0 ? ']' : '}';
    CHECK_THROWS_AS(kvstem_test::trace_of(whole + "]}"), BadFormat);
    CHECK(kvstem_test::trace_of(whole + R"(,"tokens":[1]})").requests.size() == 1);
}

TEST_CASE(
    "lengths in a trace that no machine could have are refused or replayed without a wrong hit",
    "[hostile]") {
    CHECK_THROWS_AS(
        kvstem_test::trace_of("{\"hash_ids\":[1,2],\"input_length\":9223372036854775807}\n"),
        BadFormat);
    const auto trace = kvstem_test::trace_of(
        "{\"hash_ids\":[1,2],\"input_length\":1099511627776}\n"
        "{\"hash_ids\":[1,2],\"input_length\":0}\n{\"hash_ids\":[],\"input_length\":7}\n");
    kvstem::replay::Replay<kvstem::LeastRecentlyUsed> replay(trace, {.capacity_blocks = 4});
    const auto counts = replay.run().whole;
    CHECK(counts.tokens == (std::uint64_t{1} << 40) + 7);
    CHECK(counts.hit_blocks == 2);
    CHECK(counts.hit_tokens == 0);  // of a request that says it has none
    CHECK_THROWS_WITH(kvstem_test::trace_of("{\"tokens\":[1],\"tag\":4294967296}"),
                      ContainsSubstring("tag"));
}
