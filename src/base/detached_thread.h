// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <pthread.h>

#include "base/signals_blocked.h"

namespace verbena {

// Starts a thread in the application's process that takes no signals, and that nobody waits for. `stack`: in
// bytes; one that is wanted where memory may be locked (mlockall) takes little of it. False: it could not be
// started.
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
