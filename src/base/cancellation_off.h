// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

namespace verbena {

// While it lives the calling thread is not cancelled (pthread_cancel(3)): it holds what others need.
class CancellationOff {
 public:
  CancellationOff() { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~CancellationOff() { ::pthread_setcancelstate(before_, nullptr); }
  CancellationOff(const CancellationOff&) = delete;
  CancellationOff& operator=(const CancellationOff&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace verbena
