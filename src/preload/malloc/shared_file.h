// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <sys/types.h>

namespace verbena::heap {

// The file in memory that blocks lie in: one, as large as the window, of which only those pages take memory
// that have been touched. Others find it among the descriptors of this process, so that one stays open until
// exec().
//
// A program may close descriptors that it has not opened, and open others that get their numbers. So before
// each use it is made sure which file it is. errno is not kept. Not thread-safe.
class SharedFile {
 public:
  // False: there is none, for now.
  bool open(uint64_t bytes);
  bool was_opened() const { return fd_ >= 0; }
  // Whether the descriptor is still that of the file.
  bool is_there() const;
  // Whether it is this file that the kernel speaks of.
  bool is(dev_t device, ino_t inode) const { return device == device_ && inode == inode_; }

  // Maps a part of it there, to be read and written. False, and errno: nothing has changed; EEXIST: something
  // else is there.
  bool map(void* at, uint64_t offset, uint64_t bytes) const;
  // Gives the memory of a part back: it is zeros now, for all who have it mapped. `at`: where it is mapped
  // here, for want of the descriptor or of the right to call it.
  void discard(void* at, uint64_t offset, uint64_t bytes) const;
  // Copies what is in a part to zeros. REQUIRES: is_there()
  bool copy(std::byte* to, uint64_t offset, uint64_t bytes) const;

  // As if it had never been opened. What is mapped of it stays.
  void close();

 private:
  int fd_ = -1;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace verbena::heap
