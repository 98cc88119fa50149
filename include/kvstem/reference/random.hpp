// SPDX-License-Identifier: MIT
// The generator behind seeded weights and seeded sampling: the same bits on every platform.
#pragma once

#include <cstdint>

#include "../config.hpp"

namespace kvstem::inline KVSTEM_ABI::reference {

/// SplitMix64 (Steele, Lea, Flood 2014): a counter, stirred. 2^64 draws before it repeats, and any
/// seed is as good as any other.
/// The standard distributions are left alone on purpose: the standard fixes the bits of its
/// generators but not of its distributions, so that a seed would mean other weights elsewhere.
class SplitMix64 {
  public:
    explicit SplitMix64(std::uint64_t seed) noexcept : state_(seed) {}

    /// The next 64 bits.
    std::uint64_t next() noexcept {
        state_ += 0x9E37'79B9'7F4A'7C15u;
        std::uint64_t z = state_;
        z = (z ^ (z >> 30)) * 0xBF58'476D'1CE4'E5B9u;
        z = (z ^ (z >> 27)) * 0x94D0'49BB'1331'11EBu;
        return z ^ (z >> 31);
    }

    /// Uniform in [−1, 1): one of 2^24 multiples of 2^−23, each exact in a float, so that no step
    /// of the conversion rounds.
    float signed_unit() noexcept {
        const auto top = static_cast<std::int32_t>(next() >> 40);  // 0 … 2^24 − 1
        return static_cast<float>(top - 0x80'0000) * (1.0f / 0x80'0000);
    }

    /// Uniform in [0, 1): one of 2^53 multiples of 2^−53.
    double unit() noexcept {
        return static_cast<double>(next() >> 11) * (1.0 / 9007199254740992.0);
    }

    friend bool operator==(const SplitMix64&, const SplitMix64&) = default;

  private:
    std::uint64_t state_;
};

}  // namespace kvstem
