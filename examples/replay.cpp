// SPDX-License-Identifier: MIT
// What would a prefix cache gain on my traffic? Replays a trace through RadixCache, policy by
// policy.

#include <fmt/format.h>  // named here, so that the build knows what this example needs

#include <string>
#include <vector>

#include "kvstem/replay/trace.hpp"
#include "support/command_line.hpp"
#include "support/replay_options.hpp"
#include "support/replay_report.hpp"

namespace replay = support::replay;

namespace {

int run(int argc, char** argv) {
    replay::Options options;
    support::CommandLine line("replay [TRACE.jsonl]",
                              "Replays a trace of requests through RadixCache and says what it "
                              "would have hit. A trace has "
                              "one JSON object a line, with \"hash_ids\" (and \"input_length\") as "
                              "in Mooncake's traces, or "
                              "with \"tokens\". Without one, a made-up trace is replayed.");
    options.add_to(line);
    std::vector<std::string> arguments = replay::arguments_without_trace(argc, argv, options);
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    if (!line.parse(static_cast<int>(pointers.size()), pointers.data())) return 0;
    const kvstem::replay::Trace trace = replay::load(options);
    return options.curve.empty() ? replay::replay_once(options, trace)
                                 : replay::replay_curve(options, trace);
}

}  // namespace

int main(int argc, char** argv) {
    return support::run_example("replay", [&] { return run(argc, argv); });
}
