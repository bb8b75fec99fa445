// SPDX-License-Identifier: Apache-2.0
#include "preload/malloc/own_map.h"

#include <cerrno>

#include <fcntl.h>
#include <unistd.h>

#include "base/map_line.h"

namespace verbena::heap {
std::optional<Mapping> parse_mapping(std::string_view line) {
  const auto said = parse_map_line(line);
  if (!said) return {};
  return Mapping{said->begin, said->end, said->protection, said->shared, said->device, said->inode};
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
  std::array<char, kMaxOfLine> line;
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

}  // namespace verbena::heap
