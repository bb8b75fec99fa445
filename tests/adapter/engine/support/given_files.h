// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>
#include <unistd.h>

#include "adapter/shm/kept_files.h"
#include "base/time.h"

namespace verbena::test {

// Lets the files that earlier tests gave to other users count no more.
inline void forget_given_files() {
  while (engine::kept_files() > 0) sched_yield();
  [[maybe_unused]] const bool may =
      engine::may_give_file(::geteuid(), MonotonicClock::now() + engine::kCountedAfterwards);
}

}  // namespace verbena::test
