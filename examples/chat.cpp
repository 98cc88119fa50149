// SPDX-License-Identifier: MIT
// A conversation that is warm from its second turn on: several users talk to one model over one
// system prompt, every answer is computed with the cache and without it, and the two are compared
// bit for bit. The cache is used in support/chat_conversations.hpp.

#include <fmt/format.h>

#include <optional>
#include <string>

#include "support/chat_conversations.hpp"
#include "support/chat_report.hpp"
#include "support/command_line.hpp"
#include "support/language_model.hpp"
#include "support/terminal.hpp"

namespace chat = support::chat;

namespace {

int run(int argc, char** argv) {
    chat::Options options;
    support::CommandLine line(
        "chat",
        "Several users talk to one model over one system prompt, through a PrefixCache. Each "
        "turn's "
        "prompt is the whole conversation so far; every answer is computed cold and warm, timed to "
        "its first token (TTFT), and compared bit for bit. Exit code 1 if any differs.");
    options.model.add_to(line);
    line.number("--users", "N", options.users, 1, 1000, "how many users talk");
    line.number("--turns", "N", options.turns, 1, 10'000, "how often each of them says something");
    line.number("--answer-tokens", "N", options.answer_tokens, 1, 100'000,
                "the longest answer; a sentence's end ends it too");
    line.number("--temperature", "T", options.temperature, 0, 100, "0 takes the likeliest token");
    line.number("--capacity", "N", options.capacity, 0, 1'000'000, "snapshots the cache may hold");
    line.text("--system", "TEXT", options.system, "the system prompt, in place of a story");
    line.number("--transcripts", "N", options.transcripts, 0, 1000, "conversations to print");
    line.text("--json", "FILE", options.json, "write the figures there too");
    if (!line.parse(argc, argv)) return 0;

    const std::string system = options.system.empty() ? std::string(chat::story) : options.system;
    const support::LanguageModel language(options.model);
    std::optional<support::OutputFile> json_file;
    if (!options.json.empty()) json_file.emplace(options.json);

    const chat::Outcome outcome = chat::Conversations(options, language, system).run();
    fmt::print("{}\n\n", support::styled(support::Style::bold,
                                         fmt::format("{}: {}, {} each", language.description(),
                                                     support::counted(options.users, "user"),
                                                     support::counted(options.turns, "turn"))));
    chat::print_transcripts(options, outcome, system);
    fmt::print("{}\n\n", support::styled(support::Style::dim,
                                         "  tokens of each prompt; TTFT: time to the first token, "
                                         "lookup included"));
    chat::print_table(outcome);
    chat::print_stats(outcome.stats);
    chat::print_verdict(outcome);
    if (json_file) json_file->write(chat::json_of(outcome));
    return outcome.bit_identical ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    return support::run_example("chat", [&] { return run(argc, argv); });
}
