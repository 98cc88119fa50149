// SPDX-License-Identifier: MIT
// What every example's command line has in common: options, --help, one-line errors, exit code 2.
#pragma once

#include <fmt/core.h>

#include <charconv>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "kvstem/errors.hpp"
#include "terminal.hpp"

namespace support {

/// What the user asked for cannot be done; the message is one line that says why.
class UsageError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// The options of one example. Each is bound to a variable, whose value before `parse` is the
/// default that --help shows.
///
///     std::size_t users = 3;
///     support::CommandLine line("chat", "A conversation, cold and warm.");
///     line.number("--users", "N", users, 1, 64, "how many users talk");
///     if (!line.parse(argc, argv)) return 0;  // --help was asked for and is printed
class CommandLine {
  public:
    CommandLine(std::string name, std::string purpose)
        : name_(std::move(name)), purpose_(std::move(purpose)) {}

    /// An option whose value is any text.
    void text(std::string flag, std::string value, std::string& target, std::string help) {
        if (!target.empty()) help += fmt::format(" (default {})", target);
        add(std::move(flag), std::move(value), std::move(help),
            [&target](std::string_view given) { target = given; });
    }

    /// An option whose value is a number from `least` to `most`.
    template <class Number>
    void number(const std::string& flag, std::string value, Number& target,
                std::type_identity_t<Number> least, std::type_identity_t<Number> most,
                std::string help) {
        help += fmt::format(" (default {})", target);
        add(flag, std::move(value), std::move(help),
            [&target, flag, least, most](std::string_view given) {
                Number number{};
                const char* const end = given.data() + given.size();
                const auto [stop, error] = std::from_chars(given.data(), end, number);
                const bool in_range = number >= least && number <= most;  // false for NaN
                if (error != std::errc{} || stop != end || !in_range) {
                    throw UsageError(fmt::format("{} takes a number from {} to {}, not '{}'", flag,
                                                 least, most, given));
                }
                target = number;
            });
    }

    /// Reads the arguments, `--flag value` or `--flag=value`; of a repeated option the last counts.
    /// False if --help was asked for, which is printed then.
    /// Throws: UsageError.
    [[nodiscard]] bool parse(int argc, char** argv) const {
        const std::vector<std::string_view> arguments(argv + (argc > 0), argv + argc);
        for (std::size_t i = 0; i < arguments.size(); ++i) {
            if (arguments[i] == "--help" || arguments[i] == "-h") {
                print_help();
                return false;
            }
            const std::size_t equals = arguments[i].find('=');
            const Option& option = find(arguments[i].substr(0, equals));
            if (equals != std::string_view::npos) {
                option.set(arguments[i].substr(equals + 1));
            } else if (++i < arguments.size()) {
                option.set(arguments[i]);
            } else {
                throw UsageError(fmt::format("{} needs a value: {}", option.flag, option.value));
            }
        }
        return true;
    }

  private:
    struct Option {
        std::string flag;
        std::string value;
        std::string help;
        std::function<void(std::string_view)> set;
    };

    void add(std::string flag, std::string value, std::string help,
             std::function<void(std::string_view)> set) {
        options_.push_back({std::move(flag), std::move(value), std::move(help), std::move(set)});
    }

    [[nodiscard]] const Option& find(std::string_view flag) const {
        for (const Option& option : options_) {
            if (option.flag == flag) return option;
        }
        throw UsageError(fmt::format("there is no option '{}'; --help lists them", flag));
    }

    void print_help() const {
        fmt::print("usage: examples/run {} [OPTIONS]\n\n", name_);
        print_wrapped("", 0, purpose_);
        fmt::print("\n");
        for (const Option& option : options_) {
            print_wrapped(fmt::format("  {} {}", option.flag, option.value), 24, option.help);
        }
        print_wrapped("  --help", 24, "this text");
    }

    std::string name_;
    std::string purpose_;
    std::vector<Option> options_;
};

/// Runs the body of `main`. Whatever the user can mend (an option, a file, a value) becomes one
/// line on stderr and exit code 2; anything else that is thrown becomes one line and exit code 1.
template <class Body>
int run_example(const char* name, Body body) {
    const auto complain = [name](const char* what, int exit_code) {
        std::fprintf(stderr, "%s: %s\n", name, what);
        return exit_code;
    };
    try {
        return body();
    } catch (const UsageError& error) {
        return complain(error.what(), 2);
    } catch (const kvstem::Error& error) {
        return complain(error.what(), 2);
    } catch (const std::bad_alloc&) {
        return complain("this needs more memory than there is", 2);
    } catch (const std::exception& error) {
        return complain(error.what(), 1);
    }
}

}  // namespace support
