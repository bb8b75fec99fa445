// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace verbena::heap {

// A range of addresses that contains all blocks, so that one comparison tells blocks from other memory. The
// range is not reserved, because reserved memory counts against the program's limits (ulimit -v) and
// mlockall(2) would populate it. The range lies far from where the kernel puts mappings, at a random address.
// Nevertheless other memory may lie in the range.
struct Window {
  // The alignment of the window's beginning, and the largest alignment of a block.
  static constexpr uint64_t kAlignment = uint64_t{1} << 30;

  std::byte* begin = nullptr;
  uint64_t bytes = 0;  // 0 if there is no window
};

// Chooses a window. Returns one of 0 bytes if the address space is too small or there is no random number.
// Clobbers errno.
Window choose_window();

}  // namespace verbena::heap
