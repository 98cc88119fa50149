// SPDX-License-Identifier: MIT
// Writing figures for programs: a small JSON writer and the file it goes to.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <concepts>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

#include "command_line.hpp"

namespace support {

/// Builds one JSON text. Members take a key, elements of an array do not:
///
///     JsonWriter json;
///     json.begin_object();
///     json.begin_array("turns");
///     json.value(1.5);
///     json.end_array();
///     json.value("bit_identical", true);
///     json.end_object();
class JsonWriter {
  public:
    void begin_object(std::string_view key = {}) { begin(key, '{'); }
    void end_object() { end('}'); }
    void begin_array(std::string_view key = {}) { begin(key, '['); }
    void end_array() { end(']'); }

    template <class Value>
    void value(std::string_view key, const Value& value) {
        separate(key);
        write(value);
    }
    template <class Value>
    void value(const Value& element) {
        value({}, element);
    }

    [[nodiscard]] const std::string& text() const noexcept { return text_; }

  private:
    void begin(std::string_view key, char bracket) {
        separate(key);
        text_ += bracket;
        ++depth_;
        first_ = true;
    }

    void end(char bracket) {
        --depth_;
        if (!first_) new_line();
        text_ += bracket;
        first_ = false;
        if (depth_ == 0) text_ += '\n';
    }

    void separate(std::string_view key) {
        if (!first_) text_ += ',';
        if (depth_ > 0) new_line();
        first_ = false;
        if (key.empty()) return;
        write(key);
        text_ += ": ";
    }

    void new_line() { text_ += '\n' + std::string(2 * depth_, ' '); }

    void write(bool value) { text_ += value ? "true" : "false"; }
    void write(const std::integral auto& value) { text_ += fmt::to_string(value); }

    /// JSON has no number for infinities and NaN.
    void write(double value) { text_ += std::isfinite(value) ? fmt::to_string(value) : "null"; }

    void write(const char* value) { write(std::string_view(value)); }
    void write(std::string_view value) {
        text_ += '"';
        for (const char c : value) {
            if (c == '"' || c == '\\') {
                text_ += '\\';
                text_ += c;
            } else if (static_cast<unsigned char>(c) < 0x20) {
                text_ += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
            } else {
                text_ += c;
            }
        }
        text_ += '"';
    }

    std::string text_;
    std::size_t depth_ = 0;
    bool first_ = true;  // nothing stands yet at this depth
};

/// A file named on the command line. It is opened before the work starts, so that a name that
/// cannot be written to is refused at once.
class OutputFile {
  public:
    /// Throws: UsageError.
    explicit OutputFile(std::string path) : path_(std::move(path)), file_(path_) {
        if (!file_) throw UsageError(fmt::format("cannot write to file '{}'", path_));
    }

    void write(std::string_view text) {
        file_ << text << std::flush;
        if (!file_) throw UsageError(fmt::format("cannot write to file '{}'", path_));
    }

  private:
    std::string path_;
    std::ofstream file_;
};

}  // namespace support
