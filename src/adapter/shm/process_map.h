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

// Identifies a file as the kernel does.
struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const FileIdentity&) const = default;
};

// A range of a process's memory in which the process has mapped a part of a file as shared memory. System V
// segments are such files to the kernel, too.
struct SharedStretch {
  FileIdentity file;
  uint64_t offset = 0;  // in the file, in bytes, where the range begins
  bool writable = false;
  // As the kernel shows it. Perhaps no such file exists, as after its removal.
  std::string path;
  // The addresses of the mapping (one line in /proc/PID/maps) in which the range begins.
  uint64_t mapping_begin = 0;
  uint64_t mapping_end = 0;
};

// Returns the identifier of the System V segment that contains the range, or nullopt if the range's path is
// not that of a segment. An ordinary file may have such a path, too, so the caller must check.
std::optional<int> segment_behind(const SharedStretch& stretch);

// The text of /proc/PID/maps. Pure, but for read().
class ProcessMap {
 public:
  explicit ProcessMap(std::string text) : text_(std::move(text)) {}
  // Reads the map of a process. REQUIRES: cancellation is off (CancellationOff). Errors: the kernel's, such
  // as EACCES if it denies access; E2BIG: the map is longer than 1 MiB.
  static Result<ProcessMap> read(const ProcessFolder& process);

  // Returns whether the process has a shared and writable mapping of the file.
  bool maps_for_writing(const FileIdentity& file) const;
  // Returns the part of a file that the process has mapped at [begin, end). Returns nullopt if a part of the
  // range is not mapped as shared, or if the range is not one contiguous part of one file. REQUIRES: begin <
  // end
  std::optional<SharedStretch> find(uint64_t begin, uint64_t end) const;

 private:
  std::string text_;
};

}  // namespace verbena::engine
