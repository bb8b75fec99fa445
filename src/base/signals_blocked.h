// SPDX-License-Identifier: Apache-2.0
#pragma once

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

}  // namespace verbena
