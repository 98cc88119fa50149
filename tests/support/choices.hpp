// SPDX-License-Identifier: MIT
// The decisions of a random run, drawn from bytes: those of a seed, of a fuzzer or of a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <random>
#include <span>
#include <vector>

namespace kvstem_test {

/// A run asks `left()` before each step and ends when the bytes have run out. Equal bytes, equal
/// run.
class Choices {
  public:
    Choices(std::span<const std::uint8_t> bytes, std::ostream& out) : log(out), bytes_(bytes) {}

    std::ostream& log;  ///< where the run says what it does

    [[nodiscard]] bool left() const noexcept { return !bytes_.empty(); }

    /// 0 … n − 1 for n ≥ 1, from as many bytes as n − 1 has; 0 when they have run out.
    std::size_t below(std::size_t n) noexcept {
        std::size_t value = 0;
        for (std::size_t most = n - 1; most != 0 && left(); most >>= 8u) {
            value = value << 8u | bytes_.front();
            bytes_ = bytes_.subspan(1);
        }
        return value % n;
    }
    bool one_in(std::size_t n) noexcept { return below(n) == 0; }

  private:
    std::span<const std::uint8_t> bytes_;
};

inline std::vector<std::uint8_t> bytes_of_seed(unsigned seed, std::size_t n) {
    std::mt19937 random(seed);
    std::vector<std::uint8_t> bytes(n);
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random() >> 24u);
    return bytes;
}

}  // namespace kvstem_test
