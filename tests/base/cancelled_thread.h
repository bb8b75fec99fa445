// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <thread>

#include <pthread.h>

namespace verbena::test {

// Runs `action` in a thread that has been cancelled before (pthread_cancel(3)), so that the first
// cancellation point in it ends the thread there. Whether the action came to its end.
template <class Action>
bool comes_back_cancelled(Action action) {
  bool back = false;
  std::exception_ptr error;
  std::thread([&] {
    ::pthread_cancel(::pthread_self());
    try {
      action();
    } catch (const std::exception&) {  // not the unwinding of a thread that ends
      error = std::current_exception();
    }
    ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
    back = true;
  }).join();
  if (error) std::rethrow_exception(error);
  return back;
}

}  // namespace verbena::test
