// SPDX-License-Identifier: Apache-2.0
#include "preload/malloc/window.h"

#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

namespace verbena::heap {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 40;
// The window takes at most 1/8 of all addresses.
constexpr uint64_t kShare = 8;

// Returns an address near the end of user space, or at a third of it, depending on the kernel's layout of
// this process.
uint64_t usual_address() {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  void* const at = ::mmap(nullptr, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return 0;
  ::munmap(at, page);
  return reinterpret_cast<uint64_t>(at);
}

}  // namespace

// Chooses a beginning from 1/4 to 1/2 of the usual address: above what grows behind a program that lies low,
// and below a program that lies high.
Window choose_window() {
  const uint64_t usual = usual_address();
  uint64_t bytes = kMaxBytes;
  while (bytes > usual / kShare) bytes /= 2;
  uint64_t number = 0;
  if (bytes < Window::kAlignment || ::getrandom(&number, sizeof number, GRND_NONBLOCK) != sizeof number)
    return {};
  const uint64_t begin = (usual / 4 + number % (usual / 4)) / Window::kAlignment * Window::kAlignment;
  return {.begin = reinterpret_cast<std::byte*>(begin), .bytes = bytes};
}

}  // namespace verbena::heap
