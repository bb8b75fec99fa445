// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>

#include <pthread.h>

#include "base/intrusive_list.h"

namespace verbena {

// Makes fork() hold a process-wide mutex, so that a child never inherits the mutex locked by a thread that
// the child lacks. kMutex() returns the mutex. Call this when the library is loaded. fork() locks mutexes in
// the reverse order of these calls, so the mutex of an early call is locked last. That order is right for a
// mutex under which no other mutex is taken and no thread waits. Returns 0, or the errno value of
// pthread_atfork(3).
template <auto kMutex>
int lock_at_fork() {
  return ::pthread_atfork([] { kMutex().lock(); }, [] { kMutex().unlock(); }, [] { kMutex().unlock(); });
}

// A mutex that fork() locks before it copies the process, for objects with many instances such as the tables
// of a context. So a child never inherits the mutex locked by a thread that the child lacks, nor half-changed
// data. While holding a MutexAtFork, lock no other MutexAtFork and no mutex that fork() locks earlier, such
// as a shard's.
//
// If the mutex stays locked, as when its holder forks in a signal handler, fork() stops waiting after 10 s.
// In the child the mutex is then free, and the guarded data may be half-changed.
class MutexAtFork {
 public:
  MutexAtFork();
  ~MutexAtFork();
  MutexAtFork(const MutexAtFork&) = delete;
  MutexAtFork& operator=(const MutexAtFork&) = delete;

  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  friend class MutexesAtFork;

  std::mutex mutex_;
  ListHook known_;              // in the list of all mutexes; guarded by that list's mutex
  bool forker_has_it_ = false;  // the forking thread holds mutex_; guarded like known_
};

// Registers `function` with atexit(3), for library code in programs that may fork. fork() waits until no
// other thread is inside call_at_exit(). A plain atexit() lacks this protection (glibc 2.36): a child may
// inherit the C library's lock held by another thread. The child's next atexit() and exit() then block
// forever. Any thread.
void call_at_exit(void (*function)());

}  // namespace verbena
