// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <sys/types.h>

namespace verbena::heap {

// Sparse memfd that backs the heap's address window; only touched pages use memory. The descriptor stays open
// until exec(): peer processes find the file through /proc/PID/fd.
//
// A program may close descriptors that it has not opened, and get their numbers for other files. So each use
// first checks which file the descriptor is. Clobbers errno. Not thread-safe.
class SharedFile {
 public:
  // Creates the file, of `bytes` bytes. Returns false if that fails, a resource limit restricts memory or
  // file sizes, or strict overcommit is on.
  bool open(uint64_t bytes);
  bool was_opened() const { return fd_ >= 0; }
  // Whether the descriptor still refers to the file.
  bool is_there() const;
  // Whether a device and inode, as the kernel reports them, are those of this file.
  bool is(dev_t device, ino_t inode) const { return device == device_ && inode == inode_; }

  // Maps a part of the file at `at`, readable and writable. On failure returns false with errno set, and
  // changes nothing. EEXIST means that other memory lies at `at`.
  bool map(void* at, uint64_t offset, uint64_t bytes) const;
  // Frees the memory of a part of the file; all mappings of the part then read zeros. `at` is this process's
  // mapping of the part, used if the descriptor is gone or fallocate(2) is forbidden.
  void discard(void* at, uint64_t offset, uint64_t bytes) const;
  // Copies a part of the file, except its holes, to `to`. Returns false if the file cannot be read. REQUIRES:
  // is_there(); the memory at `to` is zeroed
  bool copy(std::byte* to, uint64_t offset, uint64_t bytes) const;

  // Closes the file, and returns to the state before open(). Mappings stay.
  void close();

 private:
  int fd_ = -1;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace verbena::heap
