// SPDX-License-Identifier: MIT
// Forks and cut-backs through the decoder: drafts that are verified and partly rejected, beams that
// part ways, and nothing that is shared is ever written.

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "kvstem/reference/batcher.hpp"
#include "kvstem/reference/checkpoint.hpp"
#include "kvstem/reference/presets.hpp"
#include "support/batch_engine.hpp"
#include "support/reference.hpp"
#include "support/test_data.hpp"

using namespace kvstem;
using namespace kvstem::reference;
using support::BatchEngine;
using support::ColdAnswer;
using support::joined;
using support::same_bits;
using support::seeded_model;
using support::SharedModel;
using support::some_tokens;

namespace {

using Lease = RadixCache<>::Lease;

/// One sequence that is driven by hand on an engine's pages.
class Sequence {
  public:
    /// The copy hook of forks and cut-backs.
    [[nodiscard]] auto copy() const {
        return
            [this](PageId from, PageId to, std::size_t n) { engine_.store.copy_rows(from, to, n); };
    }

    Sequence(BatchEngine& engine, std::vector<Token> prompt) : engine_(engine) {
        auto acquired = engine.cache.acquire(prompt);
        REQUIRE(acquired);
        lease = std::move(acquired.lease);
        (void)compute(std::vector<Token>(
            prompt.begin() + static_cast<std::ptrdiff_t>(lease.adopted()), prompt.end()));
    }
    Sequence(BatchEngine& engine, Lease own) : lease(std::move(own)), engine_(engine) {}

    /// Computes tokens at the lease's end; returns their logits, which are kept as well.
    const Logits& compute(const std::vector<Token>& tokens) {
        const std::size_t at = lease.written();
        REQUIRE(lease.grow_to(at + tokens.size()) == Admission::granted);
        PagedKvView kv(engine_.store, lease.block_table(), at);
        logits = engine_.decoder.forward_batch(tokens, at, kv);
        lease.wrote(tokens);
        REQUIRE(kv.length() == lease.written());
        support::require_sound(engine_.cache);
        return logits;
    }

    void cut_back(std::size_t position) {
        REQUIRE(lease.cut_back(position, copy()) == Admission::granted);
        support::require_sound(engine_.cache);
    }

    Sequence fork() {
        auto forked = lease.fork(copy());
        REQUIRE(forked);
        support::require_sound(engine_.cache);
        return Sequence(engine_, std::move(forked.lease));
    }

    [[nodiscard]] ContiguousKv rows() const {
        return support::copy_rows(PagedKvView(engine_.store, lease.block_table(), lease.written()));
    }

    Lease lease;
    Logits logits{0, 0};

  private:
    BatchEngine& engine_;
};

Token likeliest(std::span<const float> logits) {
    return static_cast<Token>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

/// What nobody may write to, and how it looked.
struct Untouched {
    explicit Untouched(BatchEngine& with, std::vector<PageId> shared)
        : engine(with), pages(std::move(shared)) {
        for (const PageId page : pages) rows.push_back(engine.rows_of_page(page));
    }
    void require() const {
        for (std::size_t i = 0; i < pages.size(); ++i) {
            REQUIRE(engine.rows_of_page(pages[i]) == rows[i]);
        }
    }

    BatchEngine& engine;
    std::vector<PageId> pages;
    std::vector<ContiguousKv> rows;
};

/// Continues a prompt greedily with drafts of k tokens: those of the plain answer, every third
/// spoilt. Each round verifies the last token and the draft in one batch, keeps what was accepted
/// and cuts back to it. With `publishing`, a round publishes before the cut, drafts included, so
/// that the cut falls into pages that stand in the tree.
void check_speculation(const SharedModel& model, std::size_t page_tokens, std::size_t k,
                       std::uint64_t seed, Sharing publishing) {
    INFO("pages of " << page_tokens << ", drafts of " << k);
    const std::size_t vocab = model->config().vocab_size;
    const Job job{.prompt = some_tokens(14, vocab, seed), .max_new_tokens = 24};
    const ColdAnswer plain = support::cold_answer(model, job);
    BatchEngine engine(model, 64, page_tokens);
    engine.answer({.prompt = job.prompt, .max_new_tokens = 1});  // so that a prefix is shared
    const Untouched shared(engine, engine.held_pages());

    Sequence sequence(engine, job.prompt);
    REQUIRE(sequence.lease.adopted() == 13 / page_tokens * page_tokens);
    std::vector<Token> answer{likeliest(sequence.logits.last())};
    SplitMix64 random(seed);
    std::size_t rejected = 0;
    std::size_t accepted = 0;
    while (answer.size() < plain.tokens.size()) {
        std::vector<Token> batch{answer.back()};
        for (std::size_t i = 0; i < k && answer.size() + i < plain.tokens.size(); ++i) {
            const bool right = random.next() % 3 != 0;
            const auto token = plain.tokens[answer.size() + i];
            batch.push_back(right ? token
                                  : static_cast<Token>((token + 1) % static_cast<Token>(vocab)));
        }
        const std::size_t start = sequence.lease.written();
        const Logits& logits = sequence.compute(batch);
        std::size_t agreed = 0;
        while (agreed + 1 < batch.size() && likeliest(logits.row(agreed)) == batch[agreed + 1]) {
            answer.push_back(batch[++agreed]);
        }
        answer.push_back(likeliest(logits.row(agreed)));
        accepted += agreed;
        rejected += batch.size() - 1 - agreed;
        if (publishing != Sharing::off) sequence.lease.publish();
        const Untouched now(engine, engine.held_pages());
        sequence.cut_back(start + 1 + agreed);
        now.require();
        REQUIRE(sequence.lease.written() == start + 1 + agreed);
        // Drafted, the plain answer's last token gets a row as well.
        const std::size_t rows = std::min(plain.kv.length(), start + 1 + agreed);
        REQUIRE(sequence.rows().prefix(rows) == plain.kv.prefix(rows));
        shared.require();
    }
    answer.resize(plain.tokens.size());
    CHECK(answer == plain.tokens);
    CHECK(accepted > 0);
    CHECK(rejected > 0);
    sequence.lease.publish();
    sequence.lease.release();
    support::require_sound(engine.cache);
    engine.require_nothing_leaked();
    shared.require();

    // What the speculation left in the tree is the truth.
    const JobResult& warm = engine.answer(job);
    CHECK(warm.adopted_tokens >= 13 / page_tokens * page_tokens);
    support::require_same_answer(warm, plain);
}

}  // namespace

TEST_CASE("speculative decoding gives the tokens of plain decoding and writes to nothing shared",
          "[L3][X1]") {
    for (const Preset& preset : presets::tiny()) {
        INFO(preset.name);
        const auto model = seeded_model(preset.config);
        check_speculation(model, 4, 3, 1, Sharing::off);
        check_speculation(model, 4, 6, 2, Sharing::prefill_chunks);
    }
    const auto model = seeded_model(presets::llama_tiny());
    for (const std::size_t page_tokens : {1u, 2u, 16u}) {
        check_speculation(model, page_tokens, 5, 3, Sharing::off);
        check_speculation(model, page_tokens, 5, 4, Sharing::prefill_chunks);
    }
}

TEST_CASE("speculative decoding on the real model gives the tokens of plain decoding", "[L3][X1]") {
    const auto path = support::test_data("models/stories260K.bin");
    if (!path) KVSTEM_SKIP(support::no_test_data);
    check_speculation(std::make_shared<const Model>(load_checkpoint(*path)), 4, 4, 5,
                      Sharing::prefill_chunks);
}

TEST_CASE("a fork goes its own way with the bits of a sequence of its own", "[L2][X1]") {
    for (const Preset& preset : presets::tiny()) {
        INFO(preset.name);
        const auto model = seeded_model(preset.config);
        for (const std::size_t prompt : {11u, 12u, 13u}) {
            BatchEngine engine(model, 64, 4);
            const auto tokens = some_tokens(prompt, 64, 1);
            engine.answer({.prompt = tokens, .max_new_tokens = 1});
            Sequence one(engine, tokens);
            Sequence two = one.fork();
            Sequence three = two.fork();
            const std::size_t whole = prompt / 4;
            for (std::size_t i = 0; i < whole; ++i) {
                REQUIRE(one.lease.block_table()[i] == two.lease.block_table()[i]);
                REQUIRE(one.lease.block_table()[i] == three.lease.block_table()[i]);
            }
            Decoder alone(model);
            std::vector<std::vector<Token>> written(3, tokens);
            for (std::size_t step = 0; step < 7; ++step) {
                std::size_t who = 0;
                for (Sequence* sequence : {&one, &two, &three}) {
                    const Token token = static_cast<Token>(step * 3 + who);
                    const Logits& warm = sequence->compute({token});
                    written[who].push_back(token);
                    ContiguousKv kv(model->config().kv_shape());
                    const Logits cold = alone.forward_batch(written[who], 0, kv);
                    REQUIRE(same_bits(warm.last(), cold.last()));
                    REQUIRE(sequence->rows() == kv);
                    ++who;
                }
            }
            one.lease.publish();
            two.lease.publish();
            support::require_sound(engine.cache);
            one.lease.release();
            three.lease.release();
            two.lease.release();
            support::require_sound(engine.cache);
            engine.require_nothing_leaked();
            CHECK(engine.cache.peek(written[0]).cached_tokens == (prompt + 7) / 4 * 4);
            CHECK(engine.cache.peek(written[1]).cached_tokens == (prompt + 7) / 4 * 4);
            CHECK(engine.cache.peek(written[2]).cached_tokens < (prompt + 7) / 4 * 4);
        }
    }
}

TEST_CASE("from every cut-back the rest is computed with the bits of a run from scratch",
          "[L3][X1]") {
    const auto model = seeded_model(presets::qwen3_tiny());
    const auto tokens = some_tokens(18, 64, 1);
    const auto others = some_tokens(6, 64, 2);
    Decoder alone(model);
    for (const Sharing publishing : {Sharing::off, Sharing::prefill_chunks}) {
        for (std::size_t cut = 0; cut <= tokens.size(); ++cut) {
            INFO("cut back to " << cut);
            BatchEngine engine(model, 64, 4);
            engine.answer({.prompt = std::vector<Token>(tokens.begin(), tokens.begin() + 9),
                           .max_new_tokens = 0});
            Sequence sequence(engine, tokens);
            REQUIRE(sequence.lease.adopted() == 8);
            if (publishing != Sharing::off) sequence.lease.publish();
            Sequence witness = sequence.fork();
            const ContiguousKv before = witness.rows();
            sequence.cut_back(cut);
            const Logits& warm = sequence.compute(others);
            ContiguousKv kv(model->config().kv_shape());
            const auto all =
                joined(std::vector<Token>(tokens.begin(),
                                          tokens.begin() + static_cast<std::ptrdiff_t>(cut)),
                       others);
            const Logits cold = alone.forward_batch(all, 0, kv);
            REQUIRE(same_bits(warm.last(), cold.last()));
            REQUIRE(sequence.rows() == kv);
            REQUIRE(witness.rows() == before);
            sequence.lease.publish();
            witness.lease.publish();
            support::require_sound(engine.cache);
            CHECK(engine.cache.peek(all).cached_tokens == all.size() / 4 * 4);
            CHECK(engine.cache.peek(tokens).cached_tokens == 16);
            sequence.lease.release();
            witness.lease.release();
            support::require_sound(engine.cache);
            engine.require_nothing_leaked();
        }
    }
}
