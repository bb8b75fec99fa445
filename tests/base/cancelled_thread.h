// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <thread>

#include <pthread.h>

namespace verbena::test {

// Runs `action` in a thread with a pending pthread_cancel(3), so that its first cancellation point would end
// the thread. Returns whether the action completed.
template <class Action>
bool comes_back_cancelled(Action action) {
  bool back = false;
  std::exception_ptr error;
  std::thread([&] {
    ::pthread_cancel(::pthread_self());
    try {
      action();
    } catch (const std::exception&) {  // does not catch the unwinding of a cancelled thread
      error = std::current_exception();
    }
    ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
    back = true;
  }).join();
  if (error) std::rethrow_exception(error);
  return back;
}

}  // namespace verbena::test
