// SPDX-License-Identifier: Apache-2.0
#include "base/at_exit.h"

#include <cstdlib>
#include <mutex>

#include "base/mutex_at_fork.h"

namespace verbena {
namespace {

constinit std::mutex registering;
[[maybe_unused]] const int watched = lock_at_fork<[]() -> std::mutex& { return registering; }>();

}  // namespace

void call_at_exit(void (*function)()) {
  const std::lock_guard guard(registering);
  std::atexit(function);
}

}  // namespace verbena
