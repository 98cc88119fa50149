// SPDX-License-Identifier: MIT
// Namespaces: the part of a cache key that is not tokens.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "config.hpp"

namespace kvstem::inline KVSTEM_ABI {

/// What has to be equal, beside the tokens, before state may be shared: KV computed under one
/// adapter, model version or tenant is wrong, or another's secret, under a different one.
///
/// Each part is either absent or a string, and absent is not the empty string. Two namespaces are
/// the same only if each of their parts is: adapter "X" is not salt "X", and ("a", "bc") is not
/// ("ab", "c") (M7). The strings are read during the call and not kept.
///
///     cache.acquire(prompt, {.adapter = "legal-lora", .version = "2"});
struct Namespace {
    std::optional<std::string_view> adapter{};  ///< fine-tune or adapter name
    std::optional<std::string_view> version{};  ///< version of the model or of the adapter
    std::optional<std::string_view> salt{};  ///< tenant, user, or any other wall between requests

    [[nodiscard]] bool is_default() const noexcept { return !adapter && !version && !salt; }
};

}  // namespace kvstem
