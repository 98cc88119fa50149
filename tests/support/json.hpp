// SPDX-License-Identifier: MIT
// A minimal JSON reader for test data: objects, arrays, strings, numbers. Small, not fast.
#pragma once

#include <cctype>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace support {

/// A value; only the member of its kind is filled. `true`, `false` and `null` become text.
struct Json {
    std::map<std::string, Json> members;
    std::vector<Json> elements;
    std::string text;
    double number = 0.0;

    [[nodiscard]] const Json& operator[](const std::string& name) const { return members.at(name); }

    /// The elements as integers or floats.
    template <class Number>
    [[nodiscard]] std::vector<Number> numbers() const {
        std::vector<Number> result;
        for (const Json& element : elements) result.push_back(static_cast<Number>(element.number));
        return result;
    }
};

/// Throws std::runtime_error naming the offset where the text stops being JSON.
class JsonReader {
  public:
    explicit JsonReader(std::string_view text) : text_(text) {}

    Json read() {
        Json value = read_value();
        if (peek() != '\0') fail();
        return value;
    }

  private:
    [[noreturn]] void fail() const {
        throw std::runtime_error("no JSON at byte " + std::to_string(at_));
    }

    char peek() {
        while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
        return at_ < text_.size() ? text_[at_] : '\0';
    }

    bool accept(char wanted) {
        if (peek() != wanted) return false;
        ++at_;
        return true;
    }

    void expect(char wanted) {
        if (!accept(wanted)) fail();
    }

    Json read_value() {
        Json value;
        const char first = peek();
        if (first == '{') {
            read_members(value);
        } else if (first == '[') {
            read_elements(value);
        } else if (first == '"') {
            value.text = read_string();
        } else if (first == '-' || (first >= '0' && first <= '9')) {
            const std::size_t end = text_.find_first_not_of("+-.0123456789eE", at_);
            const std::string digits(text_.substr(at_, end - at_));
            value.number = std::strtod(digits.c_str(), nullptr);
            at_ += digits.size();
        } else {
            const std::size_t begin = at_;
            while (at_ < text_.size() && text_[at_] >= 'a' && text_[at_] <= 'z') ++at_;
            value.text = text_.substr(begin, at_ - begin);
            if (value.text.empty()) fail();
        }
        return value;
    }

    void read_members(Json& value) {
        expect('{');
        if (accept('}')) return;
        do {
            peek();
            std::string name = read_string();
            expect(':');
            value.members[std::move(name)] = read_value();
        } while (accept(','));
        expect('}');
    }

    void read_elements(Json& value) {
        expect('[');
        if (accept(']')) return;
        do {
            value.elements.push_back(read_value());
        } while (accept(','));
        expect(']');
    }

    std::string read_string() {
        expect('"');
        std::string result;
        while (at_ < text_.size() && text_[at_] != '"') {
            if (text_[at_] == '\\')
                result += read_escape();
            else
                result += text_[at_++];
        }
        if (at_ == text_.size()) fail();
        ++at_;
        return result;
    }

    char read_escape() {
        if (at_ + 1 >= text_.size()) fail();
        const char kind = text_[at_ + 1];
        at_ += 2;
        if (kind == 'n') return '\n';
        if (kind == 't') return '\t';
        if (kind == '"' || kind == '\\' || kind == '/') return kind;
        fail();  // \u and the rarer ones do not occur in the data
    }

    std::string_view text_;
    std::size_t at_ = 0;
};

inline Json parse_json(std::string_view text) {
    return JsonReader(text).read();
}

}  // namespace support
