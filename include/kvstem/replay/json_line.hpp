// SPDX-License-Identifier: MIT
// A strict reader for one line of JSON: an object whose members of interest are integers or lists
// of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "../config.hpp"
#include "../errors.hpp"

namespace kvstem::inline KVSTEM_ABI::replay {

/// Walks over the text of one JSON value (RFC 8259). Every call throws BadFormat, naming the
/// column, where the text is not what the call reads. Integers may be as large as 64 bits, signed
/// or not.
class JsonLine {
  public:
    explicit JsonLine(std::string_view text) noexcept : text_(text) {}

    /// Reads an object: `member(key)` is called at each value and must read or skip it. Nothing may
    /// follow the object.
    template <class Member>
    void object(Member&& member) {
        expect('{');
        if (!accept('}')) {
            do {
                space();
                const std::string_view key = string();
                expect(':');
                member(key);
            } while (accept(','));
            expect('}');
        }
        space();
        if (at_ != text_.size()) fail("the end of the line");
    }

    [[nodiscard]] std::int64_t integer() {
        space();
        const bool negative = at_ < text_.size() && text_[at_] == '-';
        if (negative) ++at_;
        const std::size_t begin = at_;
        std::uint64_t value = 0;
        for (; at_ < text_.size() && is_digit(text_[at_]); ++at_) {
            const auto digit = static_cast<std::uint64_t>(text_[at_] - '0');
            if (value > (~std::uint64_t{0} - digit) / 10) fail("an integer of at most 64 bits");
            value = value * 10 + digit;
        }
        const bool has_leading_zero = at_ - begin > 1 && text_[begin] == '0';
        const bool is_fraction =
            at_ < text_.size() && (text_[at_] == '.' || text_[at_] == 'e' || text_[at_] == 'E');
        if (begin == at_ || has_leading_zero || is_fraction) fail("an integer");
        if (negative && value > std::uint64_t{1} << 63) fail("an integer of at most 64 bits");
        return static_cast<std::int64_t>(negative ? 0 - value : value);
    }

    /// Appends the elements of a list of integers.
    void integers(std::vector<std::int64_t>& out) {
        expect('[');
        if (accept(']')) return;
        do {
            out.push_back(integer());
        } while (accept(','));
        expect(']');
    }

    /// Reads past any value, of any depth, and checks it on the way.
    void skip() {
        std::string open;  // the brackets that are open
        do {
            space();
            if (accept('{')) {
                if (!accept('}')) {
                    open += '}';
                    key();
                    continue;
                }
            } else if (accept('[')) {
                if (!accept(']')) {
                    open += ']';
                    continue;
                }
            } else {
                scalar();
            }
            while (!open.empty() && accept(open.back())) open.pop_back();
            if (open.empty()) return;
            expect(',');
            if (open.back() == '}') key();
        } while (true);
    }

  private:
    static bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

    [[noreturn]] void fail(const char* wanted) const {
        detail::fail<BadFormat>("column %zu: expected %s", at_ + 1, wanted);
    }
    void space() noexcept {
        while (at_ < text_.size() &&
               (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r')) {
            ++at_;
        }
    }
    bool accept(char wanted) noexcept {
        space();
        if (at_ == text_.size() || text_[at_] != wanted) return false;
        ++at_;
        return true;
    }
    void expect(char wanted) {
        if (accept(wanted)) return;
        const char text[] = {'\'', wanted, '\'', '\0'};
        fail(text);
    }
    void key() {
        space();
        static_cast<void>(string());
        expect(':');
    }
    /// The raw text between the quotes: escapes are checked for their form and left as they are.
    std::string_view string() {
        if (at_ == text_.size() || text_[at_] != '"') fail("a string");
        const std::size_t begin = ++at_;
        for (; at_ < text_.size() && text_[at_] != '"'; ++at_) {
            if (static_cast<unsigned char>(text_[at_]) < 0x20) fail("no control character");
            if (text_[at_] == '\\') escape();
        }
        if (at_ == text_.size()) fail("the end of the string");
        return text_.substr(begin, at_++ - begin);
    }
    void escape() {
        constexpr std::string_view hex = "0123456789abcdefABCDEF";
        ++at_;
        if (at_ == text_.size() ||
            std::string_view("\"\\/bfnrtu").find(text_[at_]) == std::string_view::npos) {
            fail("an escape");
        }
        if (text_[at_] != 'u') return;
        for (int i = 0; i < 4; ++i) {
            ++at_;
            if (at_ >= text_.size() || hex.find(text_[at_]) == std::string_view::npos) {
                fail("four hexadecimal digits");
            }
        }
    }
    void digits() {
        if (at_ == text_.size() || !is_digit(text_[at_])) fail("a digit");
        while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    }
    void scalar() {
        const char first = at_ < text_.size() ? text_[at_] : '\0';
        if (first == '"') {
            static_cast<void>(string());
            return;
        }
        for (const std::string_view word : {"true", "false", "null"}) {
            if (text_.substr(at_, word.size()) != word) continue;
            at_ += word.size();
            return;
        }
        if (first != '-' && !is_digit(first)) fail("a value");
        if (first == '-') ++at_;
        if (at_ < text_.size() && text_[at_] == '0') {
            ++at_;
        } else {
            digits();
        }
        if (at_ < text_.size() && text_[at_] == '.') {
            ++at_;
            digits();
        }
        if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
            ++at_;
            if (at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
            digits();
        }
    }

    std::string_view text_;
    std::size_t at_ = 0;
};

}  // namespace kvstem
