// SPDX-License-Identifier: MIT
// PrefixCachedEngine when memory runs out: every allocation of a call is made to fail, one at a
// time.

#include <cstddef>
#include <span>
#include <vector>

#include "catch.hpp"
#include "kvstem/prefix_cached_engine.hpp"
#include "support/fail_allocation.hpp"
#include "support/reference.hpp"
#include "support/toy_engines.hpp"

using kvstem::EngineForm;
using kvstem::PrefixCachedEngine;
using kvstem::Token;
using namespace kvstem_test;

namespace {

Tokens some(std::size_t n, std::uint64_t seed) {
    return support::some_tokens(n, 40, seed);
}

template <class Engine>
typename PrefixCachedEngine<Engine>::Options small_options() {
    if constexpr (kvstem::engine_form<Engine> == EngineForm::row) {
        return {.block_tokens = 4, .max_blocks = 8};
    } else if constexpr (kvstem::engine_form<Engine> == EngineForm::state) {
        return {.max_snapshots = 3};
    } else {
        return {};
    }
}

template <class Engine>
Engine small_engine() {
    if constexpr (kvstem::engine_form<Engine> == EngineForm::paged) {
        return Engine(8, 4);
    } else {
        return Engine{};
    }
}

const kvstem::Namespace tenant{.salt = "a tenant whose name is longer than a string keeps inline"};

}  // namespace

TEMPLATE_TEST_CASE("whichever allocation fails, nothing leaks and the next call is right",
                   "[engine][faults][R1]", ToyPagedEngine, ToyCopyingPagedEngine, ToyRowEngine,
                   ToyStateEngine) {
    const Tokens trunk = some(14, 1);
    Tokens prompt = trunk;
    prompt.resize(10);
    for (const Token token : some(8, 2)) prompt.push_back(token);
    const Tokens answer = uncached_answer(prompt, 5);
    const kvstem::GenerateParams params{.max_new_tokens = 5};
    const kvstem::GenerateParams of_tenant{.max_new_tokens = 5, .key_namespace = tenant};

    std::size_t failed = 0;
    for (const auto* wanted : {&params, &of_tenant}) {
        for (std::size_t n = 1;; ++n) {
            INFO(n);
            TestType engine = small_engine<TestType>();
            PrefixCachedEngine<TestType> cached(engine, small_options<TestType>());
            (void)cached.generate(trunk, {.max_new_tokens = 0});
            (void)cached.generate(some(9, 3), {.max_new_tokens = 0});
            Tokens tokens;
            const auto outcome = with_failing_allocation(
                n, [&] { tokens = cached.generate(prompt, *wanted).tokens; });
            if (!outcome.fired) {
                CHECK(tokens == answer);
                break;
            }
            CHECK(outcome.threw);
            ++failed;
            const auto report = cached.audit();
            CHECK(report.ok());
            if (!report.ok()) FAIL_CHECK(report.findings[0].what);
            // What is cached now serves right answers, in both namespaces.
            CHECK(cached.generate(prompt, params).tokens == answer);
            CHECK(cached.generate(prompt, of_tenant).tokens == answer);
            CHECK(cached.generate(trunk, params).tokens == uncached_answer(trunk, 5));
            CHECK(cached.audit().ok());
        }
    }
    CHECK(failed > 20);
}
