// SPDX-License-Identifier: MIT
// Rows in pages: addressed through a block table, copied by page group, the same bits as before.

#include "kvstem/reference/paged_kv.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "catch.hpp"
#include "kvstem/reference/decoder.hpp"
#include "support/reference.hpp"

using namespace kvstem;
using namespace kvstem::reference;
using support::copy_rows;
using support::PagedSequence;
using support::refusal;
using support::some_tokens;

namespace {

constexpr KvShape shape{2, 3};

PageId page(std::uint32_t number) {
    return PageId{number};
}

/// Fills every row with a number that says which it is.
void number_rows(PagedKvStore& store) {
    float next = 1.0f;
    for (std::uint32_t p = 0; p < store.capacity_pages(); ++p) {
        for (std::size_t layer = 0; layer < store.shape().n_layers; ++layer) {
            for (std::size_t slot = 0; slot < store.page_tokens(); ++slot) {
                for (float& x : store.key(page(p), layer, slot)) x = next++;
                for (float& x : store.value(page(p), layer, slot)) x = next++;
            }
        }
    }
}

}  // namespace

TEST_CASE("no two rows of a store overlap") {
    PagedKvStore store(shape, 5, 4);
    CHECK(store.bytes() == 5 * 2 * 2 * 4 * 3 * sizeof(float));
    number_rows(store);
    float next = 1.0f;
    for (std::uint32_t p = 0; p < 5; ++p) {
        for (std::size_t layer = 0; layer < 2; ++layer) {
            for (std::size_t slot = 0; slot < 4; ++slot) {
                for (const float x : store.key(page(p), layer, slot)) REQUIRE(x == next++);
                for (const float x : store.value(page(p), layer, slot)) REQUIRE(x == next++);
            }
        }
    }
}

TEST_CASE("copying a page group copies n positions in every layer and nothing else", "[M8][L2]") {
    for (std::size_t n = 0; n <= 4; ++n) {
        PagedKvStore store(shape, 3, 4);
        number_rows(store);
        const PagedKvStore before = store;
        store.copy_rows(page(2), page(0), n);
        for (std::size_t layer = 0; layer < 2; ++layer) {
            for (std::size_t slot = 0; slot < 4; ++slot) {
                const PageId source = slot < n ? page(2) : page(0);
                CHECK(support::same_bits(store.key(page(0), layer, slot),
                                         before.key(source, layer, slot)));
                CHECK(support::same_bits(store.value(page(0), layer, slot),
                                         before.value(source, layer, slot)));
                CHECK(support::same_bits(store.value(page(1), layer, slot),
                                         before.value(page(1), layer, slot)));
                CHECK(support::same_bits(store.key(page(2), layer, slot),
                                         before.key(page(2), layer, slot)));
            }
        }
    }
    PagedKvStore store(shape, 2, 4);
    number_rows(store);
    store.copy_page(page(0), page(1));
    CHECK(support::same_bits(store.value(page(0), 1, 3), store.value(page(1), 1, 3)));
}

TEST_CASE("a store refuses what it does not have, by name") {
    PagedKvStore store(shape, 3, 4);
    CHECK_THAT(refusal<InvalidArgument>([&] { (void)store.key(page(3), 0, 0); }),
               ContainsSubstring("page 3 of a store of 3"));
    CHECK_THAT(refusal<InvalidArgument>([&] { (void)store.value(no_page, 0, 0); }),
               ContainsSubstring("page 4294967295"));
    CHECK_THAT(refusal<InvalidArgument>([&] { (void)store.key(page(0), 2, 0); }),
               ContainsSubstring("layer 2 of 2"));
    CHECK_THAT(refusal<InvalidArgument>([&] { (void)store.key(page(0), 0, 4); }),
               ContainsSubstring("slot 4 of 4"));
    CHECK_THAT(refusal<InvalidArgument>([&] { store.copy_page(page(0), page(9)); }),
               ContainsSubstring("page 9"));
    CHECK_THAT(refusal<InvalidArgument>([&] { store.copy_page(page(1), page(1)); }),
               ContainsSubstring("page 1 copied onto itself"));
    CHECK_THAT(refusal<InvalidArgument>([&] { store.copy_rows(page(0), page(1), 5); }),
               ContainsSubstring("5 rows of a page of 4"));
    CHECK_THROWS_AS(PagedKvStore(shape, 0, 4), InvalidArgument);
    CHECK_THROWS_AS(PagedKvStore(shape, 3, 0), InvalidArgument);
    CHECK_THROWS_AS(PagedKvStore(KvShape{0, 3}, 3, 4), InvalidArgument);
    CHECK_THROWS_AS(PagedKvStore(shape, 3, std::numeric_limits<std::size_t>::max() / 8),
                    InvalidArgument);
    // Where std::size_t has 32 bits there is no such number.
    const std::uint64_t too_many = 0x1'0000'0000;
    const auto pages = static_cast<std::size_t>(too_many);
    if (pages == too_many) CHECK_THROWS_AS(PagedKvStore(shape, pages, 1), InvalidArgument);
}

TEST_CASE("a view refuses rows outside its length and its table, and its length stays", "[R1]") {
    PagedKvStore store(shape, 4, 4);
    std::vector<PageId> table{page(2), page(0)};
    CHECK_THAT(refusal<InvalidArgument>([&] { PagedKvView(store, table, 9); }),
               ContainsSubstring("9 + 0 positions in a block table of 2 pages of 4"));
    PagedKvView view(store, table, 6);
    CHECK_THAT(refusal<InvalidArgument>([&] { (void)view.key(0, 6); }),
               ContainsSubstring("position 6"));
    CHECK_THAT(refusal<InvalidArgument>([&] { (void)view.key_slot(0, 6); }),
               ContainsSubstring("position 6"));
    CHECK_THAT(refusal<InvalidArgument>([&] { view.reserve(3); }),
               ContainsSubstring("6 + 3 positions in a block table of 2 pages of 4"));
    CHECK_THROWS_AS(view.reserve(std::numeric_limits<std::size_t>::max()), InvalidArgument);
    table[1] = page(4);
    CHECK_THAT(refusal<InvalidArgument>([&] { view.reserve(1); }),
               ContainsSubstring("block table entry 1 names page 4 of a store of 4"));
    table[1] = no_page;
    CHECK_THAT(refusal<InvalidArgument>([&] { view.reserve(1); }),
               ContainsSubstring("page 1 of the sequence was given back"));
    CHECK_THAT(refusal<InvalidArgument>([&] { (void)view.value(0, 5); }),
               ContainsSubstring("page 1 of the sequence was given back"));
    CHECK(view.key(0, 3).data() == store.key(page(2), 0, 3).data());
    CHECK(view.length() == 6);
}

TEST_CASE("contiguous and paged runs give the same bits for every page size", "[X1]") {
    for (const Preset& preset : presets::tiny()) {
        Decoder decoder(Model::from_seed(preset.config, 5));
        const auto tokens = some_tokens(37, preset.config.vocab_size, 6);
        ContiguousKv flat(preset.config.kv_shape());
        const Logits expected = decoder.forward_batch(tokens, 0, flat);
        for (const std::size_t page_tokens : {1u, 2u, 4u, 16u, 64u}) {
            INFO(preset.name << ", pages of " << page_tokens);
            PagedSequence paged(preset.config.kv_shape(), 37, page_tokens);
            PagedKvView view = paged.view();
            std::size_t at = 0;
            for (const std::size_t n : support::some_chunks(37, 9, page_tokens)) {
                const std::span<const Token> chunk(tokens.data() + at, n);
                const Logits logits = decoder.forward_batch(chunk, at, view);
                for (std::size_t i = 0; i < n; ++i) {
                    REQUIRE(support::same_bits(logits.row(i), expected.row(at + i)));
                }
                at += n;
            }
            CHECK(copy_rows(view) == flat);
        }
    }
}

TEST_CASE("sequences that share pages compute what they compute alone", "[X1]") {
    const ModelConfig config = presets::qwen3_tiny();
    Decoder decoder(Model::from_seed(config, 5));
    const auto common = some_tokens(8, config.vocab_size, 1);
    PagedKvStore store(config.kv_shape(), 4, 4);
    const std::vector<PageId> first{page(3), page(1), page(0)};
    const std::vector<PageId> second{page(3), page(1), page(2)};
    PagedKvView a(store, first, 0);
    decoder.forward_batch(common, 0, a);
    PagedKvView b(store, second, 8);
    const std::vector<BatchRow<PagedKvView>> rows{{5, 8, &a}, {9, 8, &b}};
    const Logits together = decoder.forward_rows<PagedKvView>(rows);
    for (std::size_t i = 0; i < 2; ++i) {
        ContiguousKv alone(config.kv_shape());
        decoder.forward_batch(common, 0, alone);
        const Logits expected = decoder.forward_batch({&rows[i].token, 1}, 8, alone);
        CHECK(support::same_bits(together.row(i), expected.row(0)));
        CHECK(copy_rows(*rows[i].kv) == alone);
    }
}

TEST_CASE("a sliding sequence runs on in the pages it gave back, with the same bits", "[W2][X1]") {
    const ModelConfig config = presets::windowed_tiny();
    const std::size_t window = config.sliding_window();
    Decoder decoder(Model::from_seed(config, 5));
    const auto tokens = some_tokens(200, config.vocab_size, 2);
    ContiguousKv kept(config.kv_shape());
    PagedKvStore store(config.kv_shape(), 4, 4);
    std::vector<PageId> spare{page(0), page(1), page(2), page(3)};
    std::vector<PageId> table;
    for (std::size_t p = 0; p < tokens.size(); ++p) {
        // Page i is behind the window when even its last position is older than p − W + 1.
        for (std::size_t i = 0; i < table.size(); ++i) {
            if (table[i] == no_page || (i + 1) * 4 + window > p + 1) continue;
            spare.push_back(table[i]);
            table[i] = no_page;
        }
        if (p % 4 == 0) {
            REQUIRE(!spare.empty());
            table.push_back(spare.back());
            spare.pop_back();
        }
        PagedKvView view(store, table, p);
        const Logits slid = decoder.forward_batch({&tokens[p], 1}, p, view);
        const Logits whole = decoder.forward_batch({&tokens[p], 1}, p, kept);
        REQUIRE(slid == whole);
    }
    CHECK(table[40] == no_page);
}

TEST_CASE("a page that is still needed but was given back stops the step with nothing changed",
          "[W1][R1]") {
    const ModelConfig config = presets::mixed_window_tiny();
    Decoder decoder(Model::from_seed(config, 5));
    const auto tokens = some_tokens(12, config.vocab_size, 2);
    PagedSequence paged(config.kv_shape(), 16, 4);
    PagedKvView view = paged.view();
    decoder.forward_batch(tokens, 0, view);
    const ContiguousKv before = copy_rows(view);
    const std::uint64_t computed = decoder.tokens_computed();
    const PageId first = paged.table[0];
    paged.table[0] = no_page;
    const Token next = 7;
    CHECK_THAT(refusal<InvalidArgument>([&] { decoder.forward_batch({&next, 1}, 12, view); }),
               ContainsSubstring("page 0 of the sequence was given back"));
    CHECK(view.length() == 12);
    CHECK(decoder.tokens_computed() == computed);
    paged.table[0] = first;
    CHECK(copy_rows(view) == before);
    CHECK_NOTHROW(decoder.forward_batch({&next, 1}, 12, view));
}
