// SPDX-License-Identifier: Apache-2.0
#include "preload/malloc/own_map.h"

#include <cerrno>

#include <fcntl.h>
#include <unistd.h>

namespace verbena::heap {

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

std::optional<MapLine> OwnMap::next() {
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

}  // namespace verbena::heap
