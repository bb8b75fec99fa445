// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include <pthread.h>

namespace verbena {

// While it lives the calling thread is not cancelled (pthread_cancel(3)): it holds what others need, or is in
// a destructor, which nothing can unwind. Calls of ours are no cancellation points but where they sleep for
// as long as it pleases others (CancellationAllowed). Costs some nanoseconds, no system call.
//
// A thread that may be cancelled at any instruction (PTHREAD_CANCEL_ASYNCHRONOUS, as iperf 3.18 has its
// threads) is cancelled in such a sleep, or as soon as the outermost of these ends: C++ can be unwound from
// calls only. So the destructor may be left by that forced unwinding, and nothing that must not be unwound
// may be above it.
class CancellationOff {
 public:
  CancellationOff() {
    ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_);
    if (!is_outermost()) return;
    outer_allows_ = std::exchange(allowed_, true);
    ::pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type_);
  }
  ~CancellationOff() noexcept(false) {
    if (is_outermost()) allowed_ = outer_allows_;
    ::pthread_setcancelstate(before_, nullptr);
    if (type_ == PTHREAD_CANCEL_ASYNCHRONOUS) ::pthread_setcanceltype(type_, nullptr);
  }
  CancellationOff(const CancellationOff&) = delete;
  CancellationOff& operator=(const CancellationOff&) = delete;

 private:
  friend class CancellationAllowed;
  bool is_outermost() const { return before_ == PTHREAD_CANCEL_ENABLE; }

  int before_ = PTHREAD_CANCEL_ENABLE;
  int type_ = PTHREAD_CANCEL_DEFERRED;
  bool outer_allows_ = false;
  // Whether the thread could be cancelled before the outermost of these. Initial-exec: the other model is a
  // call.
  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local bool allowed_ = false;
};

// Within a CancellationOff: while this lives the thread may be cancelled after all, if its caller lets it.
// Around a call that sleeps, with nothing held that others wait for and nothing above it that must not be
// unwound.
class CancellationAllowed {
 public:
  CancellationAllowed() {
    if (CancellationOff::allowed_) ::pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before_);
  }
  ~CancellationAllowed() {
    if (before_ != kUnchanged) ::pthread_setcancelstate(before_, nullptr);
  }
  CancellationAllowed(const CancellationAllowed&) = delete;
  CancellationAllowed& operator=(const CancellationAllowed&) = delete;

 private:
  static constexpr int kUnchanged = -1;
  int before_ = kUnchanged;
};

}  // namespace verbena
