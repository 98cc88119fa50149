// SPDX-License-Identifier: MIT
// Reads Prometheus' text exposition format, version 0.0.4, and says what is wrong with a text.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace kvstem_test {

/// Strict: beside the format's own rules, every sample needs help and type before it, a counter's
/// name ends in _total and no other's does, and a value is a number, not a timestamp behind it.
///
///     text    = { line "\n" }
///     line    = "" | "#" comment | "# HELP " name " " help | "# TYPE " name " " type | sample
///     sample  = name [ "{" [ label { "," label } ] "}" ] " " number
///     label   = label-name "=" '"' { character | "\\" | "\n" | "\"" } '"'
///
/// All lines of a name stand together; help and type at most once, the same series never twice.
class Exposition {
  public:
    /// The first fault, with the number of its line; empty if there is none.
    [[nodiscard]] static std::string fault_of(std::string_view text) {
        return Exposition().read(text);
    }
    /// The names that have samples, and how many; read only what has no fault.
    [[nodiscard]] static std::map<std::string, std::size_t> samples_of(std::string_view text) {
        Exposition reader;
        if (!reader.read(text).empty()) return {};
        std::map<std::string, std::size_t> samples;
        for (const auto& [name, family] : reader.families_) samples[name] = family.series.size();
        return samples;
    }

  private:
    struct Family {
        bool has_help = false;
        std::string type;
        std::set<std::string> series;  // the labels, in the order of their names
    };

    std::string read(std::string_view text) {
        if (!text.empty() && text.back() != '\n') return "the last line has no end";
        for (std::size_t number = 1; !text.empty(); ++number) {
            const std::size_t end = text.find('\n');
            const std::string fault = read_line(text.substr(0, end));
            if (!fault.empty()) return "line " + std::to_string(number) + ": " + fault;
            text.remove_prefix(end + 1);
        }
        for (const auto& [name, family] : families_) {
            if (family.series.empty()) return name + " has no sample";
        }
        return "";
    }

    std::string read_line(std::string_view line) {
        if (line.empty()) return "";
        if (take(line, "# HELP ")) return read_help(line);
        if (take(line, "# TYPE ")) return read_type(line);
        if (line[0] == '#') return "";
        return read_sample(line);
    }

    std::string read_help(std::string_view line) {
        Family* family = nullptr;
        if (std::string fault = open(line, family); !fault.empty()) return fault;
        if (std::exchange(family->has_help, true)) return "a second line of help";
        if (!family->series.empty()) return "help after a sample";
        if (!take(line, " ") || line.empty()) return "no help";
        for (std::size_t i = 0; i < line.size(); ++i) {
            if (line[i] != '\\') continue;
            if (++i == line.size() || (line[i] != '\\' && line[i] != 'n')) {
                return "an unknown escape in the help";
            }
        }
        return "";
    }

    std::string read_type(std::string_view line) {
        Family* family = nullptr;
        if (std::string fault = open(line, family); !fault.empty()) return fault;
        if (!family->type.empty()) return "a second type";
        if (!family->series.empty()) return "a type after a sample";
        if (!take(line, " ")) return "no type";
        if (line != "counter" && line != "gauge" && line != "histogram" && line != "summary" &&
            line != "untyped") {
            return "an unknown type";
        }
        family->type = line;
        const std::string_view suffix = "_total";
        const bool counts =
            current_.size() > suffix.size() &&
            current_.compare(current_.size() - suffix.size(), suffix.size(), suffix) == 0;
        if (counts != (line == "counter")) return "_total and counter do not go together";
        return "";
    }

    std::string read_sample(std::string_view line) {
        Family* family = nullptr;
        if (std::string fault = open(line, family); !fault.empty()) return fault;
        if (family->type.empty()) return "a sample without a type";
        if (!family->has_help) return "a sample without help";
        std::map<std::string, std::string> labels;
        if (take(line, "{") && !take(line, "}")) {
            do {
                if (std::string fault = read_label(line, labels); !fault.empty()) return fault;
            } while (take(line, ","));
            if (!take(line, "}")) return "the labels do not end";
        }
        if (!take(line, " ")) return "no space before the value";
        if (!is_number(line)) return "not a number";
        std::string series;
        for (const auto& [name, value] : labels) series += name + "=\"" + value + "\",";
        if (!family->series.insert(series).second) return "the same series twice";
        return "";
    }

    static std::string read_label(std::string_view& line,
                                  std::map<std::string, std::string>& labels) {
        const std::string name(take_name(line, ""));
        if (name.empty()) return "not the name of a label";
        if (!take(line, "=\"")) return "no quote before the value of a label";
        std::string value;
        for (std::size_t i = 0; i < line.size(); ++i) {
            if (line[i] == '"') {
                line.remove_prefix(i + 1);
                return labels.emplace(name, value).second ? "" : "the same label twice";
            }
            if (line[i] == '\\') {
                value += line[i++];
                if (i == line.size() || std::string_view("\\\"n").find(line[i]) == line.npos) {
                    return "an unknown escape in the value of a label";
                }
            }
            value += line[i];
        }
        return "the value of a label does not end";
    }

    /// The family of the name that a line begins with. A name that comes again after another is a
    /// fault: its lines do not stand together.
    std::string open(std::string_view& line, Family*& family) {
        const std::string name(take_name(line, ":"));
        if (name.empty()) return "not the name of a metric";
        if (name != current_ && families_.count(name) != 0) return "lines of one name apart";
        current_ = name;
        family = &families_[name];
        return "";
    }

    static bool take(std::string_view& line, std::string_view prefix) {
        if (line.substr(0, prefix.size()) != prefix) return false;
        line.remove_prefix(prefix.size());
        return true;
    }
    /// [a-zA-Z_][a-zA-Z0-9_]*, and in both places what `also` has.
    static std::string_view take_name(std::string_view& line, std::string_view also) {
        std::size_t length = 0;
        for (; length < line.size(); ++length) {
            const char c = line[length];
            const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
                                also.find(c) != also.npos;
            if (!letter && (length == 0 || c < '0' || c > '9')) break;
        }
        const std::string_view name = line.substr(0, length);
        line.remove_prefix(length);
        return name;
    }
    static bool is_number(std::string_view text) {
        if (text == "NaN" || text == "+Inf" || text == "-Inf") return true;
        const std::string copy(text);
        if (copy.empty() || copy.find_first_not_of("+-.0123456789eE") != copy.npos) return false;
        char* end = nullptr;
        (void)std::strtod(copy.c_str(), &end);
        return end == copy.c_str() + copy.size();
    }

    std::map<std::string, Family> families_;
    std::string current_;
};

}  // namespace kvstem_test
