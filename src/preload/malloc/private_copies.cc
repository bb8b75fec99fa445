// SPDX-License-Identifier: Apache-2.0
#include "preload/malloc/private_copies.h"

#include <cerrno>
#include <cstddef>
#include <cstring>

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/detached_thread.h"

namespace verbena::heap {

namespace {

constexpr size_t kStackBytes = 256 << 10;

struct Call {
  bool (*function)(void*);
  void* argument;
};

int carry_out(void* given) {
  const Call& call = *static_cast<const Call*>(given);
  return call.function(call.argument) ? 0 : 1;
}

}  // namespace

bool run_on_other_stack(bool (*function)(void*), void* argument) {
  void* const stack =
      ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (stack == MAP_FAILED) return false;
  int status = -1;
  {
    const SignalsBlocked none;  // a signal handler of the program would run in both processes
    Call call{.function = function, .argument = argument};
    // The child's end sends no signal: a SIGCHLD handler of the program must not see a child that it did not
    // create.
    const pid_t other =
        ::clone(carry_out, static_cast<std::byte*>(stack) + kStackBytes, CLONE_VM | CLONE_VFORK, &call);
    while (other > 0 && ::waitpid(other, &status, __WCLONE) < 0 && errno == EINTR) {
    }
  }
  ::munmap(stack, kStackBytes);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

namespace {

// The default limit of mappings in a process (vm.max_map_count).
constexpr size_t kMaxStretches = 65536;

// Maps zeros, which use no memory before they are touched.
void* zeros(uint64_t bytes) {
  void* const at =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? nullptr : at;
}

bool is_zero(const std::byte* at, uint64_t bytes) {
  return at[0] == std::byte{0} && std::memcmp(at, at + 1, bytes - 1) == 0;
}

// Copies a range without the file's descriptor, through a second mapping, because the program's may not be
// readable. Reading untouched pages gives them memory in the file; zeros are not written to the copy.
bool copy_mapped(std::byte* to, std::byte* from, uint64_t bytes) {
  void* const second = ::mremap(from, 0, bytes, MREMAP_MAYMOVE);
  if (second == MAP_FAILED) return false;
  const bool readable = ::mprotect(second, bytes, PROT_READ) == 0;
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const auto* const source = static_cast<const std::byte*>(second);
  for (uint64_t done = 0; readable && done < bytes; done += page) {
    if (!is_zero(source + done, page)) std::memcpy(to + done, source + done, page);
  }
  ::munmap(second, bytes);
  return readable;
}

}  // namespace

bool PrivateCopies::add(std::byte* at, uint64_t bytes, int protection) {
  if (stretches_ == nullptr) stretches_ = static_cast<Stretch*>(zeros(kMaxStretches * sizeof(Stretch)));
  if (stretches_ == nullptr || count_ == kMaxStretches) return false;
  stretches_[count_++] = {.at = at, .bytes = bytes, .protection = protection};
  bytes_ += bytes;
  return true;
}

bool PrivateCopies::make(const SharedFile& file, std::byte* window) {
  if (count_ == 0) return true;
  copies_ = static_cast<std::byte*>(zeros(bytes_));
  if (copies_ == nullptr) return false;
  std::byte* to = copies_;
  for (size_t i = 0; i < count_; ++i) {
    const Stretch& from = stretches_[i];
    const bool copied = file.is_there() ? file.copy(to, static_cast<uint64_t>(from.at - window), from.bytes)
                                        : copy_mapped(to, from.at, from.bytes);
    if (!copied) return false;
    to += from.bytes;
  }
  return true;
}

bool PrivateCopies::move_in() {
  std::byte* copy = copies_;
  for (size_t i = 0; i < count_; ++i) {
    const Stretch& to = stretches_[i];
    if (to.protection != (PROT_READ | PROT_WRITE) && ::mprotect(copy, to.bytes, to.protection) != 0)
      return false;
    if (::mremap(copy, to.bytes, to.bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to.at) != to.at) return false;
    copy += to.bytes;
  }
  copies_ = nullptr;
  return true;
}

void PrivateCopies::drop() {
  if (copies_ != nullptr) ::munmap(copies_, bytes_);
  if (stretches_ != nullptr) ::munmap(stretches_, kMaxStretches * sizeof(Stretch));
  *this = {};
}

}  // namespace verbena::heap
