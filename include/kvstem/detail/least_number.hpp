// SPDX-License-Identifier: MIT
// Many numbers that change one at a time, and the least of them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "../config.hpp"

namespace kvstem::inline KVSTEM_ABI::detail {

inline double lesser(double a, double b) noexcept {
    return b < a ? b : a;
}

inline double least_of_eight(const double* n) noexcept {
    return lesser(lesser(lesser(n[0], n[1]), lesser(n[2], n[3])),
                  lesser(lesser(n[4], n[5]), lesser(n[6], n[7])));
}
/// Bits of those of eight numbers that are the same as one, bit for bit.
inline std::uint32_t equal_of_eight(const double* n, double number) noexcept {
    const auto wanted = std::bit_cast<std::uint64_t>(number);
    std::uint32_t bits = 0;
    for (std::uint32_t i = 0; i < 8; ++i) {
        bits |= static_cast<std::uint32_t>(std::bit_cast<std::uint64_t>(n[i]) == wanted) << i;
    }
    return bits;
}

/// Calls `visit(i)` for each bit i that is set, from the lowest one on.
template <class Visit>
void for_each_bit(std::uint64_t bits, Visit&& visit) {
    for (; bits != 0; bits &= bits - 1) visit(static_cast<std::size_t>(std::countr_zero(bits)));
}

/// Numbers, and the least of every eight of them. All are `highest` to begin with. Changing one and
/// asking for the least has no branch that depends on a number, which nobody could predict.
///
/// Complexity: `set` and `lower` O(1); `least` and `for_each` a step for every eight numbers.
/// Exceptions: `resize` throws std::bad_alloc with nothing changed.
class LeastNumber {
  public:
    static constexpr double highest = std::numeric_limits<double>::infinity();

    void resize(std::size_t numbers) {
        const std::size_t eights = (numbers + 63) / 64 * 8;
        numbers_.reserve(8 * eights);
        of_eight_.reserve(eights);
        numbers_.resize(8 * eights, highest);
        of_eight_.resize(eights, highest);
    }
    [[nodiscard]] double operator[](std::size_t at) const noexcept { return numbers_[at]; }

    void set(std::size_t at, double number) noexcept {
        numbers_[at] = number;
        of_eight_[at / 8] = least_of_eight(&numbers_[at / 8 * 8]);
    }
    /// Sets a number if it is lower than the one there.
    void lower(std::size_t at, double number) noexcept {
        numbers_[at] = lesser(numbers_[at], number);
        of_eight_[at / 8] = lesser(of_eight_[at / 8], number);
    }

    /// The least of all; `highest` if there is none.
    [[nodiscard]] double least() const noexcept {
        double least = highest;
        for (std::size_t i = 0; i < of_eight_.size(); i += 8) {
            least = lesser(least, least_of_eight(&of_eight_[i]));
        }
        return least;
    }
    /// Calls `visit(at)` wherever the least number stands, as `least` returns it. Requires: it is
    /// not `highest`.
    template <class Visit>
    void for_each(double least, Visit&& visit) const noexcept {
        for (std::size_t i = 0; i < of_eight_.size(); i += 8) {
            for_each_bit(equal_of_eight(&of_eight_[i], least), [&](std::size_t group) {
                const std::size_t first = 8 * (i + group);
                for_each_bit(equal_of_eight(&numbers_[first], least),
                             [&](std::size_t at) { visit(first + at); });
            });
        }
    }

    [[nodiscard]] std::size_t bytes() const noexcept {
        return (numbers_.capacity() + of_eight_.capacity()) * sizeof(double);
    }

  private:
    std::vector<double> numbers_;
    std::vector<double> of_eight_;
};

}  // namespace kvstem
