// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "preload/malloc/shared_file.h"

namespace verbena::heap {

// Calls function(argument) on a separate stack, while the caller's stack does not change at all, not even its
// return addresses. Runs in a child process that shares our memory, as after vfork(2). So the function must
// not allocate or take locks. Returns false if the call is impossible or the function returned false.
// Clobbers errno. REQUIRES: cancellation is off (CancellationOff)
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

  // Moves the copies to the addresses of the originals. Called in the child, and before the fork for the
  // block that holds the current stack. Returns false on failure.
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
