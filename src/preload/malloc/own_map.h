// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include <sys/types.h>

namespace verbena::heap {

// What this process has mapped somewhere.
struct Mapping {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  int protection = 0;
  bool shared = false;
  dev_t device = 0;
  ino_t inode = 0;
};

// Of a line of /proc/PID/maps, or of its beginning.
std::optional<Mapping> parse_mapping(std::string_view line);

// Reads /proc/self/maps, allocating nothing.
class OwnMap {
 public:
  OwnMap();
  ~OwnMap();
  OwnMap(const OwnMap&) = delete;
  OwnMap& operator=(const OwnMap&) = delete;

  bool is_open() const { return file_ >= 0; }
  // The next one in the order of addresses. Nothing: that was all, or it cannot be read.
  std::optional<Mapping> next();
  // Whether all was read.
  bool is_whole() const { return whole_; }

 private:
  // Without the names of files, which may be long.
  static constexpr size_t kMaxOfLine = 160;

  bool fill();

  const int file_;
  bool whole_ = false;
  std::array<char, 4096> text_;
  size_t used_ = 0;
  size_t length_ = 0;
};

}  // namespace verbena::heap
