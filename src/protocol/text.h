// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

namespace verbena::protocol {

// Text in a fixed field of a message: what does not fit is cut off, the rest is zeros.
inline void store_text(std::span<char> field, std::string_view text) {
  const size_t length = std::min(text.size(), field.size() - 1);
  std::fill(std::copy_n(text.begin(), length, field.begin()), field.end(), '\0');
}

// Up to the first zero, with unprintable bytes replaced by '?': it may end up on a terminal.
inline std::string load_text(std::span<const char> field) {
  std::string text(field.begin(), std::find(field.begin(), field.end(), '\0'));
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text;
}

}  // namespace verbena::protocol
