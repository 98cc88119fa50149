// SPDX-License-Identifier: MIT
// Text to tokens and back: the byte-pair tokenizer of llama2.c.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <queue>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../config.hpp"
#include "../errors.hpp"
#include "../token.hpp"
#include "file_bytes.hpp"

namespace kvstem::inline KVSTEM_ABI::reference {

/// Whether an encoded text starts with the token that begins a sequence.
enum class SequenceStart { mark, omit };

/// A vocabulary of scored pieces, and the greedy merging that turns text into it.
///
/// Choose it when: a llama2.c model is to read and write text. The caches never see text, only
/// tokens; any other tokenizer serves them as well.
/// The first 259 ids are fixed: 0 unknown, 1 begin of sequence, 2 end of sequence, 3 … 258 the
/// bytes 0 … 255. They never arise from merging; a text that spells a control token stays text.
/// File format, little endian: int32 longest piece; then per token float32 score, int32 length, and
/// that many bytes. The number of tokens is not in the file, it is the model's.
/// Complexity: encoding O(n log n) for n bytes.
/// Exceptions: BadFormat for a file that is truncated or damaged, InvalidArgument for a token
/// outside the vocabulary.
/// Threads: immutable, so any number may read.
///
///     const auto tokenizer = reference::Tokenizer::load("tok512.bin", model.config().vocab_size);
///     const auto prompt = tokenizer.encode("Once upon a time", reference::SequenceStart::mark);
class Tokenizer {
  public:
    static constexpr Token begin_of_sequence = 1;
    static constexpr Token end_of_sequence = 2;

    /// From the bytes of a tokenizer file for a model of `vocab_size` tokens.
    /// Throws: InvalidArgument if that is too few for the fixed ids; BadFormat.
    [[nodiscard]] static Tokenizer parse(std::span<const std::byte> bytes, std::size_t vocab_size) {
        if (vocab_size < n_fixed || vocab_size > 1u << 24) {
            kvstem::detail::fail<InvalidArgument>("tokenizer: vocab_size is %zu, must be %zu … %u",
                                                  vocab_size, n_fixed, 1u << 24);
        }
        ByteCursor cursor(bytes, "tokenizer");
        Tokenizer tokenizer;
        // Bounds each length below; what is allocated is bounded by what is left of the file.
        const std::int32_t longest = cursor.int32("the longest piece's length");
        for (std::size_t id = 0; id < vocab_size; ++id) {
            tokenizer.read_piece(cursor, id, longest);
        }
        if (cursor.left() != 0) {
            kvstem::detail::fail<BadFormat>("tokenizer: %zu bytes after the last of %zu tokens",
                                            cursor.left(), vocab_size);
        }
        tokenizer.sort_pieces();
        return tokenizer;
    }

    /// Throws: InvalidArgument if the file cannot be read; BadFormat.
    [[nodiscard]] static Tokenizer load(const std::string& path, std::size_t vocab_size) {
        return parse(read_file(path), vocab_size);
    }

    [[nodiscard]] std::size_t vocab_size() const noexcept { return pieces_.size(); }

    /// Tokens of a text, any bytes at all. A text that is not empty is encoded as if a space stood
    /// before it, as the models were trained. Characters (UTF-8) that are no piece become their
    /// bytes; then the neighbours whose joined piece scores highest are merged, the leftmost of
    /// equals first, until none are left.
    [[nodiscard]] std::vector<Token> encode(std::string_view text, SequenceStart start) const {
        std::vector<Token> tokens;
        if (start == SequenceStart::mark) tokens.push_back(begin_of_sequence);
        if (text.empty()) return tokens;
        std::vector<Token> parts;
        append_character(" ", parts);
        for (std::size_t i = 0; i < text.size();) {
            const std::size_t length = character_length(text.substr(i));
            append_character(text.substr(i, length), parts);
            i += length;
        }
        merge(parts);
        tokens.insert(tokens.end(), parts.begin(), parts.end());
        return tokens;
    }

    /// The bytes one token stands for: a byte token its byte, a control token none, any other its
    /// piece. May end inside a UTF-8 character.
    /// Throws: InvalidArgument if the token is outside the vocabulary.
    [[nodiscard]] std::string piece(Token token) const {
        if (token < 0 || static_cast<std::size_t>(token) >= pieces_.size()) {
            kvstem::detail::fail<InvalidArgument>("tokenizer: token %d is outside the %zu pieces",
                                                  static_cast<int>(token), pieces_.size());
        }
        const auto id = static_cast<std::size_t>(token);
        if (id < first_byte) return {};
        if (id < n_fixed) return std::string(1, static_cast<char>(id - first_byte));
        return pieces_[id].text;
    }

    /// The text that `token` adds after `previous`: its piece, less the space that `encode` put
    /// before the text if the sequence begins here. For printing token by token.
    [[nodiscard]] std::string piece_after(Token previous, Token token) const {
        std::string text = piece(token);
        if (previous == begin_of_sequence && text.starts_with(' ')) text.erase(0, 1);
        return text;
    }

    /// The text of a sequence. decode(encode(text, SequenceStart::mark)) is the text; without the
    /// mark its leading space stays, so that parts encoded one by one decode to their
    /// concatenation.
    [[nodiscard]] std::string decode(std::span<const Token> tokens) const {
        std::string text;
        Token previous = end_of_sequence;
        for (const Token token : tokens) {
            text += piece_after(previous, token);
            previous = token;
        }
        return text;
    }

  private:
    static constexpr std::size_t first_byte = 3;
    static constexpr std::size_t n_fixed = first_byte + 256;
    static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

    struct Piece {
        std::string text;
        float score = 0.0f;
    };

    /// Two neighbouring parts that could become one piece.
    struct Merge {
        float score;
        std::size_t left;   // index of the left part
        std::size_t right;  // index of the right part
        Token left_token;   // what they were when this was noted; if they changed since, it is void
        Token right_token;
        Token merged;

        /// Order of the heap: the highest score on top, of equals the leftmost.
        friend bool operator<(const Merge& a, const Merge& b) noexcept {
            return a.score < b.score || (a.score == b.score && a.left > b.left);
        }
    };

    Tokenizer() = default;

    void read_piece(ByteCursor& cursor, std::size_t id, std::int32_t longest) {
        const float score = cursor.float32("a score");
        const std::int32_t length = cursor.int32("a piece's length");
        if (std::isnan(score)) {
            kvstem::detail::fail<BadFormat>("tokenizer: the score of token %zu is not a number",
                                            id);
        }
        if (length < 0 || length > longest) {
            kvstem::detail::fail<BadFormat>("tokenizer: token %zu has length %d, longest is %d", id,
                                            static_cast<int>(length), static_cast<int>(longest));
        }
        pieces_.push_back({cursor.string("a piece", static_cast<std::size_t>(length)), score});
    }

    /// by_text_ = ids of all mergeable pieces ordered by their bytes; of equal pieces the lower id
    /// comes first and is the one that is found.
    void sort_pieces() {
        for (std::size_t id = n_fixed; id < pieces_.size(); ++id) {
            by_text_.push_back(static_cast<Token>(id));
        }
        std::stable_sort(by_text_.begin(), by_text_.end(),
                         [&](Token a, Token b) { return text_of(a) < text_of(b); });
    }

    [[nodiscard]] const std::string& text_of(Token token) const noexcept {
        return pieces_[static_cast<std::size_t>(token)].text;
    }

    /// The token of exactly this text, or the unknown token 0.
    [[nodiscard]] Token find(std::string_view text) const noexcept {
        const auto at =
            std::lower_bound(by_text_.begin(), by_text_.end(), text,
                             [&](Token id, std::string_view key) { return text_of(id) < key; });
        return at != by_text_.end() && text_of(*at) == text ? *at : Token{0};
    }

    /// Bytes of the first character: one byte and the continuation bytes behind it, at most four.
    static std::size_t character_length(std::string_view text) noexcept {
        std::size_t length = 1;
        while (length < text.size() && length < 4 &&
               (static_cast<unsigned char>(text[length]) & 0xC0u) == 0x80u) {
            ++length;
        }
        return length;
    }

    void append_character(std::string_view character, std::vector<Token>& parts) const {
        const Token token = find(character);
        if (token != 0) {
            parts.push_back(token);
            return;
        }
        for (const char byte : character) {
            parts.push_back(static_cast<Token>(static_cast<unsigned char>(byte)) +
                            static_cast<Token>(first_byte));
        }
    }

    /// Merges neighbours in place. The parts are a linked list, so that taking one out does not
    /// move the others; possible merges wait in a heap and are checked when their turn comes, so
    /// that none has to be found again to be withdrawn.
    void merge(std::vector<Token>& parts) const {
        std::vector<std::size_t> next(parts.size());
        std::vector<std::size_t> previous(parts.size());
        std::priority_queue<Merge> waiting;
        const auto consider = [&](std::size_t left, std::size_t right) {
            if (left == none || right == none) return;
            // A byte token's piece is its name, <0x41>, and not its byte: it takes no part.
            if (parts[left] < Token{n_fixed} || parts[right] < Token{n_fixed}) return;
            const Token merged = find(text_of(parts[left]) + text_of(parts[right]));
            if (merged == 0) return;
            waiting.push({pieces_[static_cast<std::size_t>(merged)].score, left, right, parts[left],
                          parts[right], merged});
        };
        for (std::size_t i = 0; i < parts.size(); ++i) {
            next[i] = i + 1 < parts.size() ? i + 1 : none;
            previous[i] = i > 0 ? i - 1 : none;
        }
        for (std::size_t i = 0; i < parts.size(); ++i) consider(i, next[i]);
        while (!waiting.empty()) {
            const Merge best = waiting.top();
            waiting.pop();
            // Void if either part has been merged since: a longer piece is another token. While
            // both are what they were, nothing can have come between them.
            if (parts[best.left] != best.left_token || parts[best.right] != best.right_token) {
                continue;
            }
            parts[best.left] = best.merged;
            parts[best.right] = 0;  // gone; 0 never takes part in a merge
            next[best.left] = next[best.right];
            if (next[best.left] != none) previous[next[best.left]] = best.left;
            consider(previous[best.left], best.left);
            consider(best.left, next[best.left]);
        }
        std::erase(parts, Token{0});
    }

    std::vector<Piece> pieces_;   // by id
    std::vector<Token> by_text_;  // ids from n_fixed on, by their text
};

}  // namespace kvstem
