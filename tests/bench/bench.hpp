// SPDX-License-Identifier: MIT
// What all groups of rows share: the settings of this run, the report, and how a request is served.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string>

#include "harness.hpp"
#include "kvstem/radix_cache.hpp"
#include "report.hpp"
#include "traffic.hpp"

namespace bench {

using Cache = kvstem::RadixCache<>;

/// The page size of the targets first.
inline constexpr std::array<std::size_t, 3> page_sizes = {16, 1, 64};

struct Bench {
    bool quick = false;  ///< a tenth of everything
    std::string only;    ///< the one row to measure; empty: all
    Report report;
    Latency latency;

    /// A size of a workload in this run.
    [[nodiscard]] std::size_t scaled(std::size_t n) const { return quick ? n / 10 : n; }
    /// Repetitions in this run.
    [[nodiscard]] int rounds(int n) const { return quick ? std::max(n / 3, 3) : n; }
    [[nodiscard]] bool wants(std::initializer_list<const char*> ids) const {
        return only.empty() ||
               std::any_of(ids.begin(), ids.end(), [&](const char* id) { return id == only; });
    }
    void add(Row row) {
        if (wants({row.id.c_str()})) report.add(std::move(row));
    }
};

inline std::string name_of(std::size_t page_tokens) {
    return "P=" + std::to_string(page_tokens);
}

/// The life of a request as an engine lives it, without its computing. The lease dies here.
template <class AnyCache>
void serve(AnyCache& cache, View prompt) {
    auto [admission, lease] = cache.acquire(prompt);
    if (admission != kvstem::Admission::granted) {
        std::fprintf(stderr, "a request of %zu tokens was refused\n", prompt.size());
        std::abort();
    }
    lease.publish(prompt.subspan(lease.adopted()));
}

/// A benchmark whose cache does not hold what it should would measure something else.
inline void require(bool condition, const char* what) {
    if (condition) return;
    std::fprintf(stderr, "the benchmark is wrong: %s\n", what);
    std::abort();
}

// The groups, one file each.
void long_rows(Bench& bench);
void wide_rows(Bench& bench);
void churn_rows(Bench& bench);
void chat_rows(Bench& bench);
void memory_rows(Bench& bench);
void snapshot_rows(Bench& bench);
void model_rows(Bench& bench);
void replay_rows(Bench& bench);
void naive_rows(Bench& bench);

}  // namespace bench
