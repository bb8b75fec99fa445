// SPDX-License-Identifier: Apache-2.0
#include "backing/own_map.h"

#include <cerrno>
#include <charconv>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

namespace verbena::backing {
namespace {

// Takes a number, and the separator behind it, off the text. False: there is none.
template <class Number>
bool take(std::string_view& text, Number& number, int base, char separator) {
  const auto [past, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc() || past == text.data() + text.size() || *past != separator) return false;
  text.remove_prefix(static_cast<size_t>(past - text.data()) + 1);
  return true;
}

}  // namespace

// "7f0000000000-7f0000001000 rw-s 00001000 00:01 1024       /memfd:name (deleted)" (proc_pid_maps(5))
std::optional<Mapping> parse_mapping(std::string_view line) {
  Mapping mapping;
  if (!take(line, mapping.begin, 16, '-') || !take(line, mapping.end, 16, ' ') || line.size() < 5) return {};
  if (line[0] == 'r') mapping.protection |= PROT_READ;
  if (line[1] == 'w') mapping.protection |= PROT_WRITE;
  if (line[2] == 'x') mapping.protection |= PROT_EXEC;
  mapping.shared = line[3] == 's';
  line.remove_prefix(5);
  uint64_t offset = 0;
  unsigned major = 0;
  unsigned minor = 0;
  if (!take(line, offset, 16, ' ') || !take(line, major, 16, ':') || !take(line, minor, 16, ' ') ||
      !take(line, mapping.inode, 10, ' ')) {
    return {};
  }
  mapping.device = makedev(major, minor);
  return mapping;
}

OwnMap::OwnMap() : file_(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC)) {}

OwnMap::~OwnMap() {
  if (file_ >= 0) ::close(file_);
}

bool OwnMap::fill() {
  ssize_t bytes = -1;
  do {
    bytes = ::read(file_, text_.data(), text_.size());
  } while (bytes < 0 && errno == EINTR);
  used_ = 0;
  length_ = bytes > 0 ? static_cast<size_t>(bytes) : 0;
  whole_ = bytes == 0;
  return bytes > 0;
}

std::optional<Mapping> OwnMap::next() {
  std::array<char, kMostOfLine> line;
  size_t length = 0;
  for (;;) {
    if (used_ == length_ && !fill()) return std::nullopt;
    const char next = text_[used_++];
    if (length < line.size()) line[length++] = next;
    if (next != '\n') continue;
    if (const auto mapping = parse_mapping({line.data(), length})) return mapping;
    length = 0;
  }
}

}  // namespace verbena::backing
