// SPDX-License-Identifier: MIT
// The model an example runs on: a llama2.c checkpoint with its tokenizer, or one seeded in memory.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "command_line.hpp"
#include "kvstem/reference/checkpoint.hpp"
#include "kvstem/reference/model.hpp"
#include "kvstem/reference/presets.hpp"
#include "kvstem/reference/tokenizer.hpp"
#include "kvstem/token.hpp"

namespace support {

/// The options that choose a model, the same in every example.
struct ModelOptions {
    std::string model;
    std::string tokenizer;
    std::string preset = "demo";
    std::uint64_t seed = 42;

    void add_to(CommandLine& line) {
        line.text("--model", "FILE", model, "a llama2.c checkpoint, in place of a seeded model");
        line.text("--tokenizer", "FILE", tokenizer, "its tokenizer; without, texts are made up");
        line.text("--preset", "NAME", preset, "the seeded model: " + preset_names());
        line.number("--seed", "N", seed, 0, ~std::uint64_t{0}, "for seeded weights and sampling");
    }

    [[nodiscard]] static std::string preset_names() {
        std::string names;
        for (const auto& known : kvstem::reference::presets::all()) {
            names += (names.empty() ? "" : ", ") + std::string(known.name);
        }
        return names;
    }
};

/// A model and how text becomes its tokens. Without a tokenizer every three bytes of a text become
/// one made-up token, so that prompts are about as long as they would be, and tokens are shown as
/// numbers.
class LanguageModel {
  public:
    using Token = kvstem::Token;
    using SequenceStart = kvstem::reference::SequenceStart;
    using Tokenizer = kvstem::reference::Tokenizer;

    /// Throws: UsageError if an option or a file is not usable.
    explicit LanguageModel(const ModelOptions& options) {
        if (options.model.empty()) {
            if (!options.tokenizer.empty()) throw UsageError("--tokenizer needs --model");
            seed(options);
            return;
        }
        load(options.model, [&] {
            model_ =
                std::make_shared<const Model>(kvstem::reference::load_checkpoint(options.model));
        });
        name_ = std::filesystem::path(options.model).filename().string();
        if (options.tokenizer.empty()) return;
        load(options.tokenizer,
             [&] { tokenizer_ = Tokenizer::load(options.tokenizer, config().vocab_size); });
    }

    [[nodiscard]] const std::shared_ptr<const kvstem::reference::Model>& model() const noexcept {
        return model_;
    }
    [[nodiscard]] const kvstem::reference::ModelConfig& config() const noexcept {
        return model_->config();
    }
    [[nodiscard]] bool has_tokenizer() const noexcept { return tokenizer_.has_value(); }

    /// One line: what it is, how large, how far it can read.
    [[nodiscard]] std::string description() const {
        const auto& c = config();
        return fmt::format("{} ({} layers, {} heads on {} KV heads, vocabulary {}, context {})",
                           name_, c.n_layers, c.n_heads, c.n_kv_heads, c.vocab_size, c.max_context);
    }

    [[nodiscard]] std::vector<Token> encode(std::string_view text, SequenceStart start) const {
        if (tokenizer_) return tokenizer_->encode(text, start);
        std::vector<Token> tokens;
        for (; !text.empty(); text.remove_prefix(std::min<std::size_t>(3, text.size()))) {
            std::size_t number = 0;
            for (const char c : text.substr(0, 3)) {
                number = number * 131 + static_cast<unsigned char>(c);
            }
            tokens.push_back(static_cast<Token>(number % config().vocab_size));
        }
        return tokens;
    }

    /// The text of tokens, or their numbers; on one line, without control characters.
    [[nodiscard]] std::string text_of(std::span<const Token> tokens) const {
        if (!tokenizer_) return fmt::format("[{}]", fmt::join(tokens, " "));
        std::string text = tokenizer_->decode(tokens);
        for (char& c : text) {
            if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
        }
        return text;
    }

    /// Whether an answer may stop after this token because it ends a sentence.
    [[nodiscard]] bool ends_sentence(Token token) const {
        if (!tokenizer_) return false;
        const std::string piece = tokenizer_->piece(token);
        return !piece.empty() && std::string_view(".!?").find(piece.back()) != std::string::npos;
    }

    /// Whether this token says that there is nothing more to say.
    [[nodiscard]] bool ends_text(Token token) const {
        return tokenizer_ &&
               (token == Tokenizer::begin_of_sequence || token == Tokenizer::end_of_sequence);
    }

  private:
    using Model = kvstem::reference::Model;

    void seed(const ModelOptions& options) {
        for (const auto& known : kvstem::reference::presets::all()) {
            if (options.preset != known.name) continue;
            model_ = std::make_shared<const Model>(Model::from_seed(known.config, options.seed));
            name_ = fmt::format("{}, seed {}", known.name, options.seed);
            return;
        }
        throw UsageError(fmt::format("there is no preset '{}'; the presets are: {}", options.preset,
                                     ModelOptions::preset_names()));
    }

    /// Names the file when what is in it is refused; that it cannot be read names it already.
    template <class Load>
    static void load(const std::string& path, Load load) {
        try {
            load();
        } catch (const kvstem::BadFormat& error) {
            throw UsageError(
                fmt::format("'{}' is damaged or of another format: {}", path, error.what()));
        }
    }

    std::shared_ptr<const Model> model_;
    std::optional<Tokenizer> tokenizer_;
    std::string name_;
};

}  // namespace support
