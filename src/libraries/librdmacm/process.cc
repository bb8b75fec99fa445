// SPDX-License-Identifier: Apache-2.0
#include "libraries/librdmacm/process.h"

#include <pthread.h>

#include "base/only_one.h"

namespace verbena::rdmacm {
namespace {

constinit OnlyOne<Process> current_process;

// Takes no lock and frees nothing: other threads of the parent may have been in any code at the fork.
void after_fork_in_child() {
  Process* inherited = current_process.forget();
  if (inherited != nullptr) inherited->agent.close_in_child();
}

[[maybe_unused]] const int watched = ::pthread_atfork(nullptr, nullptr, after_fork_in_child);

}  // namespace

Process& Process::current() {
  return current_process.get([] { return new Process; });
}

bool Process::is_current() const {
  return current_process.made() == this;
}

}  // namespace verbena::rdmacm
