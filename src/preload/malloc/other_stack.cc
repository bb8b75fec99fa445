// SPDX-License-Identifier: Apache-2.0
#include "preload/malloc/other_stack.h"

#include <cerrno>
#include <cstddef>

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/signals_blocked.h"

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

}  // namespace verbena::heap
