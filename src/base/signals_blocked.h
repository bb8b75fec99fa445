// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>

#include <pthread.h>
#include <signal.h>

namespace verbena {

// While it stands, this thread takes no signals, and a thread that it starts takes none ever: signals go to
// the application's threads. What a thread raises itself by a fault must not be blocked: the kernel would
// kill the process without a word.
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
