// SPDX-License-Identifier: MIT
// What an audit of a cache reports.
#pragma once

#include <cstdint>
#include <vector>

#include "config.hpp"

namespace kvstem::inline KVSTEM_ABI {

/// One invariant that does not hold, and the number of the node, entry, page or lease it was seen
/// at.
struct AuditFinding {
    const char* what;  ///< a sentence with static storage
    std::uint64_t subject;
};

/// The result of `audit()`: empty when every invariant holds. Audits recompute everything from raw
/// state and cost O(everything): for debug builds, tests, and a first look at a suspected fault.
struct AuditReport {
    std::vector<AuditFinding> findings;

    [[nodiscard]] bool ok() const noexcept { return findings.empty(); }
    void add(const char* what, std::uint64_t subject) { findings.push_back({what, subject}); }
    void require(bool holds, const char* what, std::uint64_t subject) {
        if (!holds) add(what, subject);
    }
};

}  // namespace kvstem
