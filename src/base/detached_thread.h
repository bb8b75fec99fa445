// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <initializer_list>

#include <pthread.h>
#include <signal.h>

namespace verbena {

// Scope in which this thread blocks all signals except those raised by faults, so that signals go to the
// application's threads. A thread started inside it inherits the mask for good. The signals in `faults` stay
// unblocked: if a fault raises a blocked signal, the kernel kills the process without running a handler.
class SignalsBlocked {
 public:
  explicit SignalsBlocked(std::initializer_list<int> faults = {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : faults) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

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
