// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

namespace verbena {

// Copies text into a fixed field of a message. Truncates the text so that the field ends with a zero, and
// fills the rest of the field with zeros.
inline void store_text(std::span<char> field, std::string_view text) {
  const size_t length = std::min(text.size(), field.size() - 1);
  std::fill(std::copy_n(text.begin(), length, field.begin()), field.end(), '\0');
}

// Makes text from another party safe for a terminal: replaces control characters by '?'. These include U+0080
// to U+009F, which terminals obey too; each becomes "??".
inline std::string printable(std::string_view text) {
  std::string result(text);
  for (size_t i = 0; i < result.size(); ++i) {
    const auto byte = static_cast<unsigned char>(result[i]);
    const auto next = static_cast<unsigned char>(i + 1 < result.size() ? result[i + 1] : 0);
    const bool is_second_set = byte == 0xc2 && next >= 0x80 && next < 0xa0;
    if (byte < 0x20 || byte == 0x7f || is_second_set) result[i] = '?';
    if (is_second_set) result[++i] = '?';
  }
  return result;
}

// Returns the text of a fixed field up to the first zero, made printable().
inline std::string load_text(std::span<const char> field) {
  return printable({field.begin(), std::find(field.begin(), field.end(), '\0')});
}

}  // namespace verbena
