// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <climits>
#include <cstddef>
#include <cstring>
#include <string_view>

namespace verbena::paths {

// Builds a path in a fixed buffer, without allocation and without the C++ run-time library. Becomes invalid
// when text does not fit, and stays invalid until clear().
class PathText {
 public:
  PathText() { text_[0] = '\0'; }
  explicit PathText(std::string_view text) : PathText() { add(text); }

  PathText& add(std::string_view text) {
    if (text.size() >= sizeof text_ - size_) {
      valid_ = false;
    } else if (!text.empty()) {
      std::memcpy(text_ + size_, text.data(), text.size());
      shorten(size_ + text.size());
    }
    return *this;
  }

  PathText& add_number(unsigned long long number) {
    char digits[20];
    size_t first = sizeof digits;
    do {
      digits[--first] = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number != 0);
    return add({digits + first, sizeof digits - first});
  }

  // Sets the length of the path. REQUIRES: size <= view().size(), or the caller wrote that many characters
  // into data()
  void shorten(size_t size) {
    size_ = size;
    text_[size] = '\0';
  }

  void invalidate() { valid_ = false; }
  void clear() {
    valid_ = true;
    shorten(0);
  }
  bool valid() const { return valid_; }
  const char* c_str() const { return text_; }
  char* data() { return text_; }
  static constexpr size_t capacity() { return PATH_MAX - 1; }
  std::string_view view() const { return {text_, size_}; }

 private:
  bool valid_ = true;
  size_t size_ = 0;
  char text_[PATH_MAX];
};

}  // namespace verbena::paths
