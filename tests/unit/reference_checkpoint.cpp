// SPDX-License-Identifier: MIT
// Checkpoints: what was written is read, and no damage gets further than a BadFormat.

#include "kvstem/reference/checkpoint.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "catch.hpp"
#include "kvstem/reference/decoder.hpp"
#include "support/reference.hpp"

using namespace kvstem;
using namespace kvstem::reference;
using support::refusal;

namespace {

ModelConfig small_config(Classifier classifier) {
    ModelConfig config = presets::llama_tiny();
    config.max_context = 20;
    config.classifier = classifier;
    return config;
}

std::vector<std::byte> small_file(Classifier classifier = Classifier::tied) {
    return support::checkpoint_of(Model::from_seed(small_config(classifier), 9));
}

/// The file with header field `index` replaced.
std::vector<std::byte> with_field(std::size_t index, std::int32_t value) {
    std::vector<std::byte> file = small_file();
    const support::Bytes word = support::Bytes().add(value);
    for (std::size_t i = 0; i < 4; ++i) file[index * 4 + i] = word.data[i];
    return file;
}

std::string refused(const std::vector<std::byte>& file) {
    return refusal<BadFormat>([&] { (void)parse_checkpoint(file); });
}

}  // namespace

TEST_CASE("a checkpoint gives back the model that was written") {
    for (const Classifier classifier : {Classifier::tied, Classifier::separate}) {
        const Model written = Model::from_seed(small_config(classifier), 9);
        const Model read = parse_checkpoint(small_file(classifier));
        CHECK(read.config().classifier == classifier);
        CHECK(read.config().kv_shape() == written.config().kv_shape());
        CHECK(read.config().max_context == 20);
        Decoder a(written);
        Decoder b(read);
        ContiguousKv x(a.config().kv_shape());
        ContiguousKv y = x;
        const auto tokens = support::some_tokens(20, 64, 1);
        CHECK(a.forward_batch(tokens, 0, x) == b.forward_batch(tokens, 0, y));
        CHECK(x == y);
    }
}

TEST_CASE("bytes at any alignment are read alike") {
    const std::vector<std::byte> file = small_file();
    for (std::size_t shift = 1; shift < 4; ++shift) {
        std::vector<std::byte> shifted(shift);
        shifted.insert(shifted.end(), file.begin(), file.end());
        const Model model = parse_checkpoint(std::span(shifted).subspan(shift));
        CHECK(model.weights().layers[1].wo == parse_checkpoint(file).weights().layers[1].wo);
    }
}

TEST_CASE("a cursor gives no byte more than there are, and stays where it is", "[R3]") {
    const std::vector<std::byte> three(3);
    ByteCursor cursor(three, "file");
    CHECK_THROWS_AS(cursor.int32("a number"), BadFormat);
    CHECK_THROWS_AS(cursor.string("a name", 4), BadFormat);
    CHECK_THROWS_AS(cursor.floats("numbers", 1), BadFormat);
    CHECK_THROWS_AS(cursor.floats("numbers", ~std::size_t{0}), BadFormat);
    CHECK_THROWS_AS(cursor.skip("the rest", 4), BadFormat);
    CHECK(cursor.offset() == 0);
    cursor.skip("the rest", 3);
    CHECK(cursor.left() == 0);
    CHECK_THROWS_AS(cursor.skip("more", 1), BadFormat);
}

TEST_CASE("a header field that cannot be is named with its value") {
    CHECK_THAT(refused(with_field(0, 0)), ContainsSubstring("dim is 0"));
    CHECK_THAT(refused(with_field(0, -24)), ContainsSubstring("dim is -24"));
    CHECK_THAT(refused(with_field(0, 1 << 21)), ContainsSubstring("dim is 2097152"));
    CHECK_THAT(refused(with_field(0, 26)), ContainsSubstring("dim 26 is not a multiple"));
    CHECK_THAT(refused(with_field(0, 12)), ContainsSubstring("head size 3"));
    CHECK_THAT(refused(with_field(1, 0)), ContainsSubstring("hidden_dim is 0"));
    CHECK_THAT(refused(with_field(2, -1)), ContainsSubstring("n_layers is -1"));
    CHECK_THAT(refused(with_field(2, 3)), ContainsSubstring("bytes after the header"));
    CHECK_THAT(refused(with_field(3, 0)), ContainsSubstring("n_heads is 0"));
    CHECK_THAT(refused(with_field(4, 3)), ContainsSubstring("n_kv_heads 3"));
    CHECK_THAT(refused(with_field(4, 8)), ContainsSubstring("n_kv_heads 8"));
    CHECK_THAT(refused(with_field(5, 0)), ContainsSubstring("vocab_size is 0"));
    CHECK_THAT(refused(with_field(5, INT32_MIN)), ContainsSubstring("vocab_size is -2147483648"));
    CHECK_THAT(refused(with_field(5, -64)), ContainsSubstring("bytes after the header"));
    CHECK_THAT(refused(with_field(6, 0)), ContainsSubstring("max_context is 0"));
    CHECK_THAT(refused(with_field(6, INT32_MAX)), ContainsSubstring("max_context is 2147483647"));
}

// Each field at its limit asks for more floats than any machine has: the file's length must decide
// before anything is allocated.
TEST_CASE("a header that asks for an enormous model is refused without allocating it") {
    support::Bytes file;
    for (const std::int32_t field : {1 << 20, 1 << 20, 1 << 10, 1 << 10, 1 << 10}) file.add(field);
    file.add(-(1 << 24)).add(1 << 24).add(std::vector<float>(100));
    CHECK_THAT(refused(file.data), ContainsSubstring("400 bytes after the header"));
}

TEST_CASE("a checkpoint cut anywhere is refused") {
    for (const Classifier classifier : {Classifier::tied, Classifier::separate}) {
        const std::vector<std::byte> file = small_file(classifier);
        std::vector<std::size_t> lengths;
        for (std::size_t n = 0; n < 40; ++n) lengths.push_back(n);
        for (std::size_t n = 40; n < file.size(); n += 611) lengths.push_back(n);
        for (std::size_t n = 1; n <= 8; ++n) lengths.push_back(file.size() - n);
        for (const std::size_t n : lengths) {
            INFO("cut to " << n << " bytes");
            // A vector of its own, so that a read past the end is seen by the address sanitiser.
            const std::vector<std::byte> cut(file.begin(),
                                             file.begin() + static_cast<std::ptrdiff_t>(n));
            REQUIRE_THAT(refused(cut), StartsWith("checkpoint: "));
        }
    }
}

TEST_CASE("a checkpoint with something after its end is refused") {
    std::vector<std::byte> file = small_file();
    file.push_back(std::byte{0});
    CHECK_THAT(refused(file), ContainsSubstring("bytes after the header"));
    file.resize(file.size() + 3);
    CHECK_THAT(refused(file), ContainsSubstring("bytes after the header"));
}

TEST_CASE("a checkpoint with any bit of its header flipped is refused") {
    for (std::size_t bit = 0; bit < 28 * 8; ++bit) {
        std::vector<std::byte> file = small_file();
        file[bit / 8] ^= std::byte{1} << (bit % 8);
        INFO("bit " << bit);
        REQUIRE_THAT(refused(file), StartsWith("checkpoint: "));
    }
}

TEST_CASE("a file that cannot be read is refused by its path") {
    CHECK_THAT(refusal<InvalidArgument>([] { (void)load_checkpoint("no/such/model.bin"); }),
               ContainsSubstring("cannot open file 'no/such/model.bin'"));
    CHECK_THAT(refusal<InvalidArgument>([] { (void)load_checkpoint("."); }),
               ContainsSubstring("'.'"));
}
