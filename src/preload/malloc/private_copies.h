// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "preload/malloc/shared_file.h"

namespace verbena::heap {

// What a child gets at fork(): memory of its own with what its parent's blocks had in them, in their places.
// The parent makes the copies before the fork, so the two need not wait for each other. Only pages that have
// been touched are copied. errno is not kept.
class PrivateCopies {
 public:
  // A stretch that is to be copied, in ascending order. False: there is no memory to remember it.
  bool add(std::byte* at, uint64_t bytes, int protection);
  // Copies them all. `window`: where the file's beginning would lie. False: it cannot be done.
  bool make(const SharedFile& file, std::byte* window);

  // In the child: puts them where the originals are. False: it cannot be done.
  bool move_in();
  // Forgets everything; copies that have not been moved are given back.
  void drop();

 private:
  struct Stretch {
    std::byte* at;
    uint64_t bytes;
    int protection;
  };

  Stretch* stretches_ = nullptr;
  size_t count_ = 0;
  std::byte* copies_ = nullptr;  // one behind the other
  uint64_t bytes_ = 0;
};

}  // namespace verbena::heap
