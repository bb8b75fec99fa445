// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <optional>

#include "base/map_line.h"

namespace verbena::heap {

// Reads /proc/self/maps without allocating memory. Not thread-safe.
class OwnMap {
 public:
  OwnMap();
  ~OwnMap();
  OwnMap(const OwnMap&) = delete;
  OwnMap& operator=(const OwnMap&) = delete;

  bool is_open() const { return file_ >= 0; }
  // Returns the next mapping, without its path, in the order of addresses; nullopt at the end, or if the file
  // cannot be read.
  std::optional<MapLine> next();
  // Whether the whole file was read. Valid after next() has returned nullopt.
  bool is_whole() const { return whole_; }

 private:
  // The bytes used of each line: enough for the part before the file name.
  static constexpr size_t kMaxOfLine = 160;

  bool fill();

  const int file_;
  bool whole_ = false;
  std::array<char, 4096> text_;
  size_t used_ = 0;
  size_t length_ = 0;
};

}  // namespace verbena::heap
