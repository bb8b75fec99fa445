// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>

#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <sys/types.h>

namespace verbena {

// One memory mapping of a process: a line of /proc/PID/maps.
struct MapLine {
  uint64_t begin = 0;  // address of the first byte
  uint64_t end = 0;    // address after the last byte
  int protection = PROT_NONE;
  bool shared = false;  // MAP_SHARED
  uint64_t offset = 0;  // of `begin` in the file, in bytes
  dev_t device = 0;
  ino_t inode = 0;
  std::string_view path;  // points into the parsed text
};

// Parses a line of /proc/PID/maps (proc_pid_maps(5)), or the beginning of one:
//   "7f0000000000-7f0000001000 rw-s 00001000 00:01 1024       /memfd:name (deleted)"
// Returns nullopt if the fields up to the inode are not all there; the path may be cut off. Allocates
// nothing, and needs only the C library.
inline std::optional<MapLine> parse_map_line(std::string_view text) {
  // Removes a number and the separator after it from the front of `text`. Returns false if they are not
  // there.
  const auto take = [&text](auto& number, int base, char separator) {
    const auto [past, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
    if (error != std::errc() || past == text.data() + text.size() || *past != separator) return false;
    text.remove_prefix(static_cast<size_t>(past - text.data()) + 1);
    return true;
  };
  MapLine line;
  if (!take(line.begin, 16, '-') || !take(line.end, 16, ' ') || text.size() < 5) return std::nullopt;
  if (text[0] == 'r') line.protection |= PROT_READ;
  if (text[1] == 'w') line.protection |= PROT_WRITE;
  if (text[2] == 'x') line.protection |= PROT_EXEC;
  line.shared = text[3] == 's';
  text.remove_prefix(5);
  unsigned major = 0;
  unsigned minor = 0;
  if (!take(line.offset, 16, ' ') || !take(major, 16, ':') || !take(minor, 16, ' ') ||
      !take(line.inode, 10, ' ')) {
    return std::nullopt;
  }
  line.device = makedev(major, minor);
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  line.path = text;
  return line;
}

}  // namespace verbena
