// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>

#include <pthread.h>

namespace verbena {

// fork() waits for a mutex of something that there is once in a process, so that a child does not find it
// taken by a thread that it does not have. To be said as soon as the library is loaded: what is said first is
// locked last, as it has to be with a mutex under which no other is taken and nobody waits. kMutex() answers
// the mutex.
template <auto kMutex>
int lock_at_fork() {
  return ::pthread_atfork([] { kMutex().lock(); }, [] { kMutex().unlock(); }, [] { kMutex().unlock(); });
}

}  // namespace verbena
