// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace verbena::heap {

// A stretch of addresses in which all blocks lie, so that one comparison tells them from other memory. It is
// not reserved: what is reserved counts as the program's (ulimit -v) and would be filled by mlockall(2). It
// is far from where the kernel puts what may lie anywhere, at an address that nobody can foretell. Something
// else may lie in it all the same.
struct Window {
  // Every alignment up to this is that of the window's beginning.
  static constexpr uint64_t kAlignment = uint64_t{1} << 30;

  std::byte* begin = nullptr;
  uint64_t bytes = 0;  // 0: there is none
};

// errno is not kept.
Window choose_window();

}  // namespace verbena::heap
