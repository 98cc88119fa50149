// SPDX-License-Identifier: MIT
// Many users on one system prompt, batched over paged KV: with the cache, the pages of that prompt
// are computed once and held once. Both runs are shown side by side, and every answer is compared
// bit for bit. The cache is used by kvstem/reference/batcher.hpp.

#include <fmt/core.h>

#include <optional>
#include <string>

#include "support/command_line.hpp"
#include "support/language_model.hpp"
#include "support/paged_report.hpp"
#include "support/paged_users.hpp"
#include "support/terminal.hpp"

namespace paged = support::paged;

namespace {

int run(int argc, char** argv) {
    paged::Options options;
    support::CommandLine line(
        "paged",
        "Many users on one system prompt, answered together by a continuous batcher over paged KV, "
        "without a cache and with a RadixCache. Compares the pages they hold, the tokens that are "
        "computed, the time, and every answer bit for bit. Exit code 1 if any answer differs.");
    options.model.add_to(line);
    line.number("--users", "N", options.users, 1, 1000, "how many users there are, all at once");
    line.number("--answer-tokens", "N", options.answer_tokens, 1, 100'000,
                "the longest answer; a sentence's end ends it too");
    line.number("--temperature", "T", options.temperature, 0, 100, "0 takes the likeliest token");
    line.number("--page-tokens", "P", options.page_tokens, 1, 4096, "positions of a page");
    line.number("--chunk-tokens", "N", options.chunk_tokens, 1, 1'000'000,
                "of a prompt that are computed in one step");
    line.number("--pages", "N", options.pages, 0, 10'000'000,
                "the pool; 0: as many as all users need without sharing");
    line.text("--system", "TEXT", options.system, "the system prompt, in place of a story");
    line.number("--transcripts", "N", options.transcripts, 0, 1000, "answers to print");
    line.text("--dot", "FILE", options.dot, "write a picture of the tree there, for Graphviz");
    line.text("--json", "FILE", options.json, "write the figures there too");
    if (!line.parse(argc, argv)) return 0;

    const std::string system = options.system.empty() ? std::string(paged::story) : options.system;
    const support::LanguageModel language(options.model);
    std::optional<support::OutputFile> dot_file;
    std::optional<support::OutputFile> json_file;
    if (!options.dot.empty()) dot_file.emplace(options.dot);
    if (!options.json.empty()) json_file.emplace(options.json);

    const paged::Outcome outcome = paged::compare(options, language, system);
    fmt::print("{}\n", support::styled(support::Style::bold, language.description()));
    fmt::print("{}\n\n",
               support::styled(support::Style::bold,
                               fmt::format("{} on one system prompt of {}, {} of {}",
                                           support::counted(options.users, "user"),
                                           support::counted(outcome.system_tokens, "token"),
                                           support::counted(outcome.capacity_pages, "page"),
                                           support::counted(options.page_tokens, "position"))));
    paged::print_transcripts(options, language, outcome, system);
    paged::print_table(outcome);
    paged::print_tree(outcome);
    paged::print_verdict(outcome);
    if (dot_file) dot_file->write(outcome.dot);
    if (json_file) json_file->write(paged::json_of(options, outcome));
    return outcome.differing.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    return support::run_example("paged", [&] { return run(argc, argv); });
}
