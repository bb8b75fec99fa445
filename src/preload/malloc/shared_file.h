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
// first checks that the descriptor still refers to the memfd. Clobbers errno. Not thread-safe.
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
  // Frees the memory of a part of the file; all mappings of the part then read zeros. `at` is where the part
  // is mapped in this process. It is needed if the descriptor is gone or fallocate(2) is forbidden.
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

// Calls function(argument) on a separate stack, while the caller's stack does not change at all, not even its
// return addresses. The function runs in a child process that shares our memory, while this thread waits, as
// after vfork(2). So the function must not allocate or take locks. Returns false if the call is impossible or
// the function returned false. Clobbers errno. REQUIRES: cancellation is off (CancellationOff)
bool run_on_other_stack(bool (*function)(void*), void* argument);

// Copies of the parent's blocks for a child of fork(): private memory with the same contents at the same
// addresses. The parent makes the copies before the fork, so neither process waits for the other. Copies only
// pages that have been touched. Clobbers errno. Not thread-safe.
class PrivateCopies {
 public:
  // Adds a range to copy, which gets `protection` in the child. Returns false if the list is full or has no
  // memory. REQUIRES: ranges are added in ascending order
  bool add(std::byte* at, uint64_t bytes, int protection);
  // Copies all ranges in the parent. `window` is the address of offset 0 of the file. Returns false on
  // failure.
  bool make(const SharedFile& file, std::byte* window);

  // Moves the copies to the addresses of the originals. Called in the child. For the block that holds the
  // current stack, called before the fork instead, by run_on_other_stack(). Returns false on failure.
  bool move_in();
  // Clears the list, and unmaps copies that have not been moved.
  void drop();

 private:
  struct Stretch {
    std::byte* at;
    uint64_t bytes;
    int protection;
  };

  Stretch* stretches_ = nullptr;
  size_t count_ = 0;
  std::byte* copies_ = nullptr;  // all copies, one behind the other
  uint64_t bytes_ = 0;
};

}  // namespace verbena::heap
