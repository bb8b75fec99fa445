// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>

#include <pthread.h>

namespace verbena {

// Makes fork() hold a process-wide mutex, so that a child never inherits the mutex taken by a thread that it
// lacks. kMutex() returns the mutex. Call when the library is loaded, since fork handlers registered first
// lock last. That order is right for a mutex under which no other mutex is taken and no thread waits. Returns
// 0, or the errno value of pthread_atfork(3).
template <auto kMutex>
int lock_at_fork() {
  return ::pthread_atfork([] { kMutex().lock(); }, [] { kMutex().unlock(); }, [] { kMutex().unlock(); });
}

}  // namespace verbena
