// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <optional>

#include <fcntl.h>
#include <unistd.h>

#include "base/map_line.h"

namespace verbena::heap {

// Reads /proc/self/maps without allocating memory. Not thread-safe.
class OwnMap {
 public:
  OwnMap() : file_(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC)) {}
  ~OwnMap() {
    if (file_ >= 0) ::close(file_);
  }
  OwnMap(const OwnMap&) = delete;
  OwnMap& operator=(const OwnMap&) = delete;

  bool is_open() const { return file_ >= 0; }
  // Returns the next mapping, without its path, in the order of addresses; nullopt at the end, or if the file
  // cannot be read.
  std::optional<MapLine> next() {
    std::array<char, kMaxOfLine> line;
    size_t length = 0;
    for (;;) {
      if (used_ == length_ && !fill()) return std::nullopt;
      const char next = text_[used_++];
      if (length < line.size()) line[length++] = next;
      if (next != '\n') continue;
      if (auto mapping = parse_map_line({line.data(), length})) {
        mapping->path = {};  // the line ends here
        return mapping;
      }
      length = 0;
    }
  }
  // Whether the whole file was read. Valid after next() has returned nullopt.
  bool is_whole() const { return whole_; }

 private:
  // The bytes used of each line: enough for the part before the file name.
  static constexpr size_t kMaxOfLine = 160;

  bool fill() {
    ssize_t bytes = -1;
    do {
      bytes = ::read(file_, text_.data(), text_.size());
    } while (bytes < 0 && errno == EINTR);
    used_ = 0;
    length_ = bytes > 0 ? static_cast<size_t>(bytes) : 0;
    whole_ = bytes == 0;
    return bytes > 0;
  }

  const int file_;
  bool whole_ = false;
  std::array<char, 4096> text_;
  size_t used_ = 0;
  size_t length_ = 0;
};

}  // namespace verbena::heap
