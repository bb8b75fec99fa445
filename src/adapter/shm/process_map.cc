// SPDX-License-Identifier: Apache-2.0
#include "adapter/shm/process_map.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "base/map_line.h"
#include "base/unique_fd.h"

namespace verbena::engine {
namespace {

// What the kernel calls System V segments (ipc/shm.c), with a key in hexadecimal behind it.
constexpr std::string_view kSegmentName = "/SYSV";
// Some ten thousand mappings. To read them takes some milliseconds.
constexpr size_t kMaxText = 1 << 20;

FileIdentity file_of(const MapLine& line) {
  return {line.device, line.inode};
}

bool is_writable(const MapLine& line) {
  return (line.protection & PROT_WRITE) != 0;
}

// Files have numbers from 1 on, and a line without a file has 0; but the number of a segment is its
// identifier, and the first of a namespace has 0.
bool is_of_a_file(const MapLine& line) {
  return line.inode != 0 || line.path.starts_with(kSegmentName);
}

// Calls visit(line) for each until it answers true.
template <class Visit>
void for_each_line(std::string_view text, Visit visit) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const auto line = parse_map_line(text.substr(0, end));
    if (line && visit(*line)) return;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

}  // namespace

std::optional<int> segment_behind(const SharedStretch& stretch) {
  const bool is_one = stretch.path.starts_with(kSegmentName) && stretch.file.inode <= INT_MAX;
  return is_one ? std::optional(static_cast<int>(stretch.file.inode)) : std::nullopt;
}

Result<ProcessMap> ProcessMap::read(const ProcessFolder& process) {
  const UniqueFd file = process.open("maps", O_RDONLY);
  if (!file) return fail(errno);
  std::string text;
  for (;;) {
    constexpr size_t kPiece = 1 << 16;
    const size_t before = text.size();
    if (before >= kMaxText) return fail(E2BIG);
    text.resize(before + kPiece);
    const ssize_t bytes = ::read(file.get(), text.data() + before, kPiece);
    if (bytes < 0 && errno != EINTR) return fail(errno);
    text.resize(before + static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
    if (bytes == 0) return ProcessMap(std::move(text));
  }
}

bool ProcessMap::maps_for_writing(const FileIdentity& file) const {
  bool found = false;
  for_each_line(text_, [&](const MapLine& line) {
    return found = line.shared && is_writable(line) && file_of(line) == file;
  });
  return found;
}

// A mapping is shown in several lines where its parts have other rights or advice. The path tells a segment
// from a file whose number is the segment's identifier.
std::optional<SharedStretch> ProcessMap::find(uint64_t begin, uint64_t end) const {
  std::optional<SharedStretch> found;
  uint64_t covered = begin;  // up to here
  for_each_line(text_, [&](const MapLine& line) {
    if (line.end <= covered) return false;
    const bool fits = line.begin <= covered && line.shared && is_of_a_file(line);
    const uint64_t offset = line.offset + (covered - line.begin);
    if (fits && !found) {
      found = SharedStretch{.file = file_of(line),
                            .offset = offset,
                            .writable = true,
                            .path = std::string(line.path),
                            .mapping_begin = line.begin,
                            .mapping_end = line.end};
    }
    const bool goes_on = fits && file_of(line) == found->file && line.path == found->path &&
                         offset - found->offset == covered - begin && line.end > line.begin;
    if (!goes_on) {
      found.reset();
      return true;
    }
    found->writable &= is_writable(line);
    covered = line.end;
    return covered >= end;
  });
  if (covered < end) return std::nullopt;
  return found;
}

}  // namespace verbena::engine
