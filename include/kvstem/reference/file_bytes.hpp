// SPDX-License-Identifier: MIT
// Reading files whose content is not to be trusted: whole files, and a cursor that cannot overrun.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "../config.hpp"
#include "../errors.hpp"

namespace kvstem::inline KVSTEM_ABI::reference {

/// All bytes of a file. Read piece by piece until it ends: asking for the size first would trust
/// an answer that directories and pipes give wrongly.
/// Throws: InvalidArgument if the file cannot be opened or read.
inline std::vector<std::byte> read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        kvstem::detail::fail<InvalidArgument>("cannot open file '%.150s'", path.c_str());
    }
    constexpr std::size_t piece = std::size_t{1} << 20;
    std::vector<std::byte> bytes;
    while (file) {
        const std::size_t end = bytes.size();
        bytes.resize(end + piece);
        file.read(reinterpret_cast<char*>(bytes.data() + end), piece);
        bytes.resize(end + static_cast<std::size_t>(file.gcount()));
    }
    if (!file.eof()) {
        kvstem::detail::fail<InvalidArgument>("cannot read file '%.150s'", path.c_str());
    }
    return bytes;
}

/// Walks through little-endian data. Every step is checked against what is left before anything is
/// read or allocated; values are put together from bytes, so neither the machine's byte order nor
/// the alignment of the data matters.
/// Exceptions: BadFormat saying what was being read, at which byte, and how much was left.
class ByteCursor {
  public:
    /// `format` names the file type in messages.
    ByteCursor(std::span<const std::byte> bytes, const char* format) noexcept
        : bytes_(bytes), format_(format) {}

    [[nodiscard]] std::size_t offset() const noexcept { return offset_; }
    [[nodiscard]] std::size_t left() const noexcept { return bytes_.size() - offset_; }

    /// The next four bytes, two's complement. `what` names the value in messages, here and below.
    std::int32_t int32(const char* what) { return static_cast<std::int32_t>(load(take(what, 4))); }

    float float32(const char* what) { return std::bit_cast<float>(load(take(what, 4))); }

    /// `length` bytes as they are; what encoding they have is the reader's business.
    std::string string(const char* what, std::size_t length) {
        const auto bytes = take(what, length);
        return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    }

    /// `count` floats in a row. Nothing is allocated unless all of them are there.
    std::vector<float> floats(const char* what, std::size_t count) {
        if (count > left() / 4) take(what, left() + 1);  // reports; the product might overflow
        const auto bytes = take(what, count * 4);
        std::vector<float> values(count);
        for (std::size_t i = 0; i < count; ++i) {
            values[i] = std::bit_cast<float>(load(bytes.subspan(i * 4, 4)));
        }
        return values;
    }

    void skip(const char* what, std::size_t count) { take(what, count); }

  private:
    /// The next `count` bytes, or BadFormat: the one place where the cursor moves.
    std::span<const std::byte> take(const char* what, std::size_t count) {
        if (count > left()) {
            kvstem::detail::fail<BadFormat>("%s: ends inside %s at byte %zu, %zu bytes left",
                                            format_, what, offset_, left());
        }
        const auto taken = bytes_.subspan(offset_, count);
        offset_ += count;
        return taken;
    }

    /// Σ four[i] · 256^i.
    static std::uint32_t load(std::span<const std::byte> four) noexcept {
        return std::to_integer<std::uint32_t>(four[0]) |
               std::to_integer<std::uint32_t>(four[1]) << 8 |
               std::to_integer<std::uint32_t>(four[2]) << 16 |
               std::to_integer<std::uint32_t>(four[3]) << 24;
    }

    std::span<const std::byte> bytes_;
    const char* format_;
    std::size_t offset_ = 0;
};

}  // namespace kvstem
