// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "preload/malloc/shared_file.h"

namespace verbena::heap {

// Copies of the parent's blocks for a child of fork(): private memory with the same contents at the same
// addresses. The parent makes the copies before the fork, so neither process waits for the other. Copies only
// pages that have been touched. Clobbers errno. Not thread-safe.
class PrivateCopies {
 public:
  // Adds a range to copy; ranges are in ascending order. False if there is no memory for the list.
  bool add(std::byte* at, uint64_t bytes, int protection);
  // Copies all ranges. `window`: the address of offset 0 of the file. False on failure.
  bool make(const SharedFile& file, std::byte* window);

  // In the child: moves the copies to the addresses of the originals. False on failure.
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
