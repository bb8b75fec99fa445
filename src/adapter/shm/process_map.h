// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <sys/types.h>

#include "adapter/shm/process_folder.h"
#include "base/result.h"

namespace verbena::engine {

// A file, as the kernel tells it from others.
struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const FileIdentity&) const = default;
};

// A stretch of a process's memory that is a stretch of a file, shared with all who map it. To the kernel
// System V segments are files, too.
struct SharedStretch {
  FileIdentity file;
  uint64_t offset = 0;  // in the file
  bool writable = false;
  std::string path;  // as the kernel shows it: perhaps of no file that there is
  // What is mapped there in one piece; the stretch lies in its first.
  uint64_t mapping_begin = 0;
  uint64_t mapping_end = 0;
};

// The identifier of the System V segment that it is of, by its name: another file may bear such a name.
std::optional<int> segment_behind(const SharedStretch& stretch);

// What /proc/PID/maps says of a process. Pure: its text comes from outside, and is the kernel's.
class ProcessMap {
 public:
  explicit ProcessMap(std::string text) : text_(std::move(text)) {}
  // Of a process that the kernel lets us look at. Not to be cancelled in (CancellationOff). Errors: the
  // kernel's; E2BIG: there is more than is read.
  static Result<ProcessMap> read(const ProcessFolder& process);

  // Whether the file is mapped somewhere, shared and writable.
  bool maps_for_writing(const FileIdentity& file) const;
  // What [begin, end) is of, if it is all of one file and shared. REQUIRES: begin < end
  std::optional<SharedStretch> find(uint64_t begin, uint64_t end) const;

 private:
  std::string text_;
};

}  // namespace verbena::engine
