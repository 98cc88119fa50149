// SPDX-License-Identifier: MIT
// The one file that includes Catch2: version 2.13 or 3, whichever is installed, under one set of
// names.
#pragma once

#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_approx.hpp>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#include <catch2/matchers/catch_matchers_all.hpp>
#ifdef CATCH_CONFIG_RUNNER
#include <catch2/catch_session.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
using CatchListener = Catch::EventListenerBase;
#endif
#else
#include <catch2/catch.hpp>
#ifdef CATCH_CONFIG_RUNNER
using CatchListener = Catch::TestEventListenerBase;
#endif
namespace Catch::Matchers {
/// Version 3 gave the name `Contains` to ranges and this one to strings.
inline auto ContainsSubstring(const std::string& part) {
    return Contains(part);
}
}  // namespace Catch::Matchers
#endif

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using Catch::Matchers::WithinAbs;

/// Prints "skipped: <test>: <why>" and counts it; main.cpp has the body.
void report_skipped_test(const char* why);

/// Leaves a test whose precondition the machine does not meet, visibly: `KVSTEM_SKIP("no model");`
/// A macro because it returns from the test; version 2 has no SKIP of its own.
#define KVSTEM_SKIP(why)          \
    do {                          \
        report_skipped_test(why); \
        return;                   \
    } while (false)
