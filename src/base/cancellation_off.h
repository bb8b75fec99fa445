// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include <pthread.h>

namespace verbena {

// Scope in which the calling thread cannot be cancelled (pthread_cancel(3)). Needed where the thread holds
// locks that others need, and in destructors, which cannot be unwound. Our calls are cancellation points only
// where they may sleep for an unbounded time (CancellationAllowed). Costs some nanoseconds and no system
// call.
//
// A thread with PTHREAD_CANCEL_ASYNCHRONOUS (iperf 3.18 sets it) can be cancelled at any instruction outside
// of our calls. C++ can be unwound only from calls. So in our code such a thread is cancelled only in a sleep
// within CancellationAllowed, or when the outermost CancellationOff ends. The destructor may therefore exit
// by forced unwinding, and all callers' frames must be able to unwind.
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
  // Whether the thread could be cancelled before its outermost CancellationOff. Initial-exec TLS: the default
  // model costs a function call.
  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local bool allowed_ = false;
};

// Scope inside a CancellationOff in which the thread may be cancelled again, if the caller allows it. Use
// around a call that sleeps. REQUIRES: the thread holds no lock or resource that other threads wait for.
// REQUIRES: the frames of all callers can be unwound
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
