// SPDX-License-Identifier: MIT
// How long the UTF-8 sequence is that a text begins with.
#pragma once

#include <cstddef>
#include <string_view>

#include "../config.hpp"

namespace kvstem::inline KVSTEM_ABI::detail {

/// The bytes of the character that a text begins with; 0 if it begins with none: a stray or missing
/// continuation byte, an overlong form, a surrogate, a number beyond U+10FFFF. Requires: the text
/// is not empty.
///
/// | first byte | length | second byte, where not 80 … BF                             |
/// | ---------- | ------ | ---------------------------------------------------------- |
/// | 00 … 7F    | 1      |                                                            |
/// | C2 … DF    | 2      |                                                            |
/// | E0 … EF    | 3      | after E0 from A0 (overlong), after ED up to 9F (surrogates) |
/// | F0 … F4    | 4      | after F0 from 90 (overlong), after F4 up to 8F (too large)  |
[[nodiscard]] inline std::size_t utf8_length(std::string_view text) noexcept {
    const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned char lead = byte(0);
    if (lead < 0x80) return 1;
    if (lead < 0xC2 || lead > 0xF4) return 0;
    const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (length > text.size()) return 0;
    const unsigned char least = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const unsigned char most = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (byte(1) < least || byte(1) > most) return 0;
    for (std::size_t i = 2; i < length; ++i) {
        if ((byte(i) & 0xC0) != 0x80) return 0;
    }
    return length;
}

}  // namespace kvstem
