// SPDX-License-Identifier: MIT
// A real trained model: the prompts, logits and stories that llama2.c itself produced with it.

#include <cstddef>
#include <string>
#include <vector>

#include "catch.hpp"
#include "kvstem/reference/checkpoint.hpp"
#include "kvstem/reference/decoder.hpp"
#include "kvstem/reference/file_bytes.hpp"
#include "kvstem/reference/paged_kv.hpp"
#include "kvstem/reference/sampler.hpp"
#include "kvstem/reference/tokenizer.hpp"
#include "support/json.hpp"
#include "support/reference.hpp"
#include "support/test_data.hpp"

using namespace kvstem;
using namespace kvstem::reference;

namespace {

support::Json read_json(const std::string& path) {
    const auto bytes = read_file(path);
    return support::parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

/// Prompt and greedy continuation over any KV, `n` tokens of it.
template <kv_view View>
std::vector<Token> continue_greedily(Decoder& decoder, const std::vector<Token>& prompt,
                                     std::size_t n, View& kv) {
    Sampler sampler{SamplingParams{}};
    std::vector<Token> answer;
    Logits logits = decoder.forward_batch(prompt, 0, kv, LogitsFor::last_token);
    while (answer.size() < n) {
        answer.push_back(sampler.sample(logits.last()));
        if (answer.size() == n) break;
        logits = decoder.forward_batch({&answer.back(), 1}, kv.length(), kv);
    }
    return answer;
}

}  // namespace

TEST_CASE("the trained model's prompts, logits and stories are those of llama2.c") {
    const auto golden_path = support::test_data("models/golden.json");
    if (!golden_path) KVSTEM_SKIP(support::no_test_data);
    Decoder decoder(load_checkpoint(*support::test_data("models/stories260K.bin")));
    const Tokenizer tokenizer =
        Tokenizer::load(*support::test_data("models/tok512.bin"), decoder.config().vocab_size);
    const support::Json golden = read_json(*golden_path);
    REQUIRE(golden.elements.size() == 5);
    for (const support::Json& story : golden.elements) {
        INFO(story["prompt"].text);
        const auto prompt = tokenizer.encode(story["prompt"].text, SequenceStart::mark);
        REQUIRE(prompt == story["prompt_tokens"].numbers<Token>());
        CHECK(tokenizer.decode(prompt) == story["prompt"].text);

        const auto first_logits = story["last_prompt_logits_first8"].numbers<double>();
        REQUIRE(first_logits.size() == 8);
        ContiguousKv prefilled(decoder.config().kv_shape());
        const Logits logits = decoder.forward_batch(prompt, 0, prefilled, LogitsFor::last_token);
        for (std::size_t i = 0; i < 8; ++i) {
            CHECK_THAT(logits.last()[i], WithinAbs(first_logits[i], 1e-4));
        }

        const auto greedy = story["greedy_tokens"].numbers<Token>();
        REQUIRE(greedy.size() > 100);
        ContiguousKv kv(decoder.config().kv_shape());
        CHECK(continue_greedily(decoder, prompt, greedy.size(), kv) == greedy);
    }
}

TEST_CASE("the trained model tells the same story from paged KV") {
    const auto golden_path = support::test_data("models/golden.json");
    if (!golden_path) KVSTEM_SKIP(support::no_test_data);
    Decoder decoder(load_checkpoint(*support::test_data("models/stories260K.bin")));
    const support::Json story = read_json(*golden_path).elements.at(1);
    const auto prompt = story["prompt_tokens"].numbers<Token>();
    const auto greedy = story["greedy_tokens"].numbers<Token>();
    support::PagedSequence paged(decoder.config().kv_shape(), prompt.size() + greedy.size(), 16);
    PagedKvView view = paged.view();
    CHECK(continue_greedily(decoder, prompt, greedy.size(), view) == greedy);
    ContiguousKv kv(decoder.config().kv_shape());
    (void)continue_greedily(decoder, prompt, greedy.size(), kv);
    CHECK(support::copy_rows(view) == kv);
}
