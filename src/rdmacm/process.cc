// SPDX-License-Identifier: Apache-2.0
#include "rdmacm/process.h"

#include <atomic>
#include <mutex>

#include <pthread.h>

namespace verbena::rdmacm {
namespace {

std::atomic<Process*> current_process{nullptr};

// No lock is taken and nothing freed: another thread of the parent may have been in the middle of anything.
void after_fork_in_child() {
  Process* inherited = current_process.exchange(nullptr);
  if (inherited != nullptr) inherited->agent.close_in_child();
}

}  // namespace

Process& Process::current() {
  static std::once_flag once;
  std::call_once(once, [] { ::pthread_atfork(nullptr, nullptr, after_fork_in_child); });
  Process* process = current_process.load(std::memory_order_acquire);
  while (process == nullptr) {
    auto* fresh = new Process;  // never destroyed: threads of the application may outlive static objects
    if (current_process.compare_exchange_strong(process, fresh)) return *fresh;
    delete fresh;
  }
  return *process;
}

bool Process::is_current() const {
  return current_process.load(std::memory_order_acquire) == this;
}

}  // namespace verbena::rdmacm
