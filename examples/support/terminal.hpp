// SPDX-License-Identifier: MIT
// What is shown to a person: tables, wrapped text, colour and a progress line on a terminal.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace support {

inline constexpr std::size_t page_columns = 100;

enum class Style { plain, bold, dim, green, red };

/// Whether stdout shows colours: a terminal that was not told otherwise (https://no-color.org).
[[nodiscard]] inline bool has_colour() {
    const char* const term = std::getenv("TERM");
    return isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr && term != nullptr &&
           std::string_view(term) != "dumb";
}

/// The text in a style, or as it is where there are no colours.
[[nodiscard]] inline std::string styled(Style style, std::string_view text) {
    static const bool coloured = has_colour();
    if (!coloured || style == Style::plain) return std::string(text);
    const char* const code = style == Style::bold    ? "1"
                             : style == Style::dim   ? "2"
                             : style == Style::green ? "32"
                                                     : "31";
    return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

/// Columns a UTF-8 text takes: its bytes but for the continuation bytes.
[[nodiscard]] inline std::size_t columns_of(std::string_view text) {
    return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
        return (static_cast<unsigned char>(c) & 0xC0u) != 0x80u;
    }));
}

/// Prints words between `indent` and the right margin; `label` stands in the indent of the first
/// line.
inline void print_wrapped(std::string_view label, std::size_t indent, std::string_view text) {
    std::string line = fmt::format("{:<{}}", label, indent);
    bool empty = true;
    const auto flush = [&] {
        fmt::print("{}\n", line);
        line.assign(indent, ' ');
        empty = true;
    };
    while (!text.empty()) {
        const std::size_t begin = std::min(text.find_first_not_of(" \t\n\r"), text.size());
        const std::size_t end = std::min(text.find_first_of(" \t\n\r", begin), text.size());
        const std::string_view word = text.substr(begin, end - begin);
        if (!empty && columns_of(line) + 1 + columns_of(word) > page_columns) flush();
        if (!empty) line += ' ';
        line += word;
        empty = false;
        text.remove_prefix(end);
    }
    flush();
}

/// Rows under headings, each column as wide as its widest cell. The first `left_columns` columns
/// are flush left, the others, numbers, flush right.
class Table {
  public:
    explicit Table(std::vector<std::string> headings, std::size_t left_columns = 0)
        : rows_{std::move(headings)}, left_columns_(left_columns) {}

    /// As many cells as there are headings.
    void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

    /// A rule across the table.
    void rule() { rows_.emplace_back(); }

    void print() const {
        std::vector<std::size_t> widths(rows_.front().size(), 0);
        for (const auto& cells : rows_) {
            for (std::size_t i = 0; i < cells.size(); ++i) {
                widths[i] = std::max(widths[i], columns_of(cells[i]));
            }
        }
        std::size_t total = 0;
        for (const std::size_t width : widths) total += width + gap;
        const std::string line = "  " + repeated("─", total - gap);
        for (std::size_t i = 0; i < rows_.size(); ++i) {
            if (rows_[i].empty()) {
                fmt::print("{}\n", styled(Style::dim, line));
            } else {
                const std::string text = aligned(rows_[i], widths);
                fmt::print("{}\n", i == 0 ? styled(Style::bold, text) : text);
            }
            if (i == 0) fmt::print("{}\n", styled(Style::dim, line));
        }
    }

  private:
    static constexpr std::size_t gap = 3;

    static std::string repeated(std::string_view text, std::size_t count) {
        std::string result;
        for (std::size_t i = 0; i < count; ++i) result += text;
        return result;
    }

    [[nodiscard]] std::string aligned(const std::vector<std::string>& cells,
                                      const std::vector<std::size_t>& widths) const {
        std::string text = "  ";
        for (std::size_t i = 0; i < cells.size(); ++i) {
            const std::string padding(widths[i] - columns_of(cells[i]), ' ');
            text += i < left_columns_ ? cells[i] + padding : padding + cells[i];
            if (i + 1 < cells.size()) text += std::string(gap, ' ');
        }
        return text;
    }

    std::vector<std::vector<std::string>> rows_;  // an empty one is a rule
    std::size_t left_columns_;
};

/// A line on stderr that says how far a long run has come: only on a terminal, only after a second,
/// and gone at the end.
class Progress {
  public:
    /// `what` is counted, in the plural: "turns".
    Progress(std::string what, std::size_t total) : what_(std::move(what)), total_(total) {}
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;
    ~Progress() {
        if (shown_) std::fputs("\r\x1b[K", stderr);
    }

    /// One more is done.
    void step() {
        ++done_;
        const auto now = Clock::now();
        if (!on_terminal_ || now - start_ < std::chrono::seconds(1)) return;
        if (shown_ && now - last_ < std::chrono::milliseconds(50)) return;
        last_ = now;
        shown_ = true;
        const std::size_t filled = total_ == 0 ? 0 : done_ * bar_columns / total_;
        const std::string bar = std::string(filled, '#') + std::string(bar_columns - filled, '.');
        std::fprintf(stderr, "\r\x1b[K[%s] %zu of %zu %s", bar.c_str(), done_, total_,
                     what_.c_str());
        std::fflush(stderr);
    }

  private:
    using Clock = std::chrono::steady_clock;
    static constexpr std::size_t bar_columns = 40;

    std::string what_;
    std::size_t total_;
    std::size_t done_ = 0;
    bool on_terminal_ = isatty(STDERR_FILENO) != 0;
    bool shown_ = false;
    Clock::time_point start_ = Clock::now();
    Clock::time_point last_ = start_;
};

/// Milliseconds since it was made.
class Stopwatch {
  public:
    [[nodiscard]] double milliseconds() const {
        return std::chrono::duration<double, std::milli>(Clock::now() - start_).count();
    }

  private:
    using Clock = std::chrono::steady_clock;
    Clock::time_point start_ = Clock::now();
};

/// Bytes in the unit that leaves one to four digits before the point.
[[nodiscard]] inline std::string bytes_text(std::size_t bytes) {
    if (bytes < 10'000) return fmt::format("{} B", bytes);
    const double kib = static_cast<double>(bytes) / 1024;
    return kib < 10'000 ? fmt::format("{:.1f} KiB", kib) : fmt::format("{:.1f} MiB", kib / 1024);
}

/// "1 turn", "2 turns".
[[nodiscard]] inline std::string counted(std::size_t n, std::string_view what) {
    return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

}  // namespace support
