// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <ctime>

#include <pthread.h>

#include "base/log.h"

namespace verbena::adapter {

// Counts the events of an object that the application has acknowledged. The call that destroys the object
// waits here until all taken events are acknowledged. Initializes and destroys the mutex and the condition
// variable in the object's C struct.
class EventAccount {
 public:
  EventAccount(pthread_mutex_t& mutex, pthread_cond_t& cond) : mutex_(mutex), cond_(cond) {
    ::pthread_mutex_init(&mutex_, nullptr);
    ::pthread_cond_init(&cond_, nullptr);
  }
  ~EventAccount() {
    ::pthread_cond_destroy(&cond_);
    ::pthread_mutex_destroy(&mutex_);
  }
  EventAccount(const EventAccount&) = delete;
  EventAccount& operator=(const EventAccount&) = delete;

  void acknowledge(uint32_t& completed, uint32_t count) {
    ::pthread_mutex_lock(&mutex_);
    completed += count;
    ::pthread_cond_broadcast(&cond_);
    ::pthread_mutex_unlock(&mutex_);
  }

  // Waits without a timeout until all taken events are acknowledged: `completed` equals `taken`. After
  // kPatienceSeconds, await() logs an error, because the program has probably forgotten to call the function
  // `missing`. The error names the waiting function, `call`, and the object that it destroys.
  void await(const uint32_t& completed, const std::atomic<uint32_t>& taken, const char* call,
             const void* object, const char* missing) {
    ::pthread_mutex_lock(&mutex_);
    if (completed != taken.load() && !is_soon(completed, taken)) {
      log_error(
          "{}() of {} waits until the program acknowledges {} more event{} that it has taken: call {}()",
          call, object, taken.load() - completed, taken.load() - completed == 1 ? "" : "s", missing);
      while (completed != taken.load()) ::pthread_cond_wait(&cond_, &mutex_);
    }
    ::pthread_mutex_unlock(&mutex_);
  }

 private:
  static constexpr time_t kPatienceSeconds = 2;

  // Waits for up to kPatienceSeconds, which is enough for a program that is just handling an event. Returns
  // true if all taken events are acknowledged then. REQUIRES: mutex_ is held
  bool is_soon(const uint32_t& completed, const std::atomic<uint32_t>& taken) {
    timespec until{};
    ::clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += kPatienceSeconds;
    while (completed != taken.load()) {
      if (::pthread_cond_clockwait(&cond_, &mutex_, CLOCK_MONOTONIC, &until) == ETIMEDOUT)
        return completed == taken.load();
    }
    return true;
  }

  pthread_mutex_t& mutex_;
  pthread_cond_t& cond_;
};

}  // namespace verbena::adapter
