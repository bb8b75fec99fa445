// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <pthread.h>

#include "base/signals_blocked.h"

namespace verbena {

// Starts a detached thread in the application's process with its signals blocked (SignalsBlocked). `stack`:
// the thread's stack size in bytes; keep it small, since mlockall() locks the whole stack. Returns false if
// the thread cannot be started.
inline bool start_detached_thread(void* (*run)(void*), void* argument, size_t stack) {
  const SignalsBlocked blocked;  // inherited by the new thread
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, stack);
  pthread_t thread;
  const bool started = ::pthread_create(&thread, &attributes, run, argument) == 0;
  pthread_attr_destroy(&attributes);
  return started;
}

}  // namespace verbena
