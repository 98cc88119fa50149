// SPDX-License-Identifier: MIT
// The test program: runs what the command line selects and ends with the line "N passed, N failed".

#define CATCH_CONFIG_RUNNER
#include "catch.hpp"

#include <cstddef>
#include <cstdio>
#include <string>

namespace {

// The totals are only told to listeners, and listeners are made by Catch2, hence the globals.
bool run_started = false;
std::size_t passed_tests = 0;
std::size_t failed_tests = 0;
std::size_t skipped_tests = 0;

struct Totals : CatchListener {
    using CatchListener::CatchListener;

    void testRunStarting(const Catch::TestRunInfo&) override { run_started = true; }

    void testCaseEnded(const Catch::TestCaseStats& test) override {
        ++(test.totals.testCases.failed == 0 ? passed_tests : failed_tests);
    }
};

}  // namespace

CATCH_REGISTER_LISTENER(Totals)

void report_skipped_test(const char* why) {
    SUCCEED("skipped");  // without an assertion it would count as a test that checks nothing
    ++skipped_tests;
    const std::string name(Catch::getResultCapture().getCurrentTestName());
    std::printf("skipped: %s: %s\n", name.c_str(), why);
}

int main(int argc, char** argv) {
    Catch::Session session;
    // A test that checks nothing cannot fail; Catch2 then counts it as failed.
    session.configData().warnings = Catch::WarnAbout::NoAssertions;
    const int failures = session.run(argc, argv);
    if (!run_started) return failures;  // it listed the tests, printed the help or refused a flag
    std::fflush(nullptr);
    if (skipped_tests != 0) std::printf("%zu skipped\n", skipped_tests);
    std::printf("%zu passed, %zu failed\n", passed_tests - skipped_tests, failed_tests);
    // A filter that matches nothing has proved nothing.
    return failures == 0 && passed_tests != 0 ? 0 : 1;
}
