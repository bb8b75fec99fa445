// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include <pthread.h>

namespace verbena::adapter {

// The mutex and condition variable that some of the C structs carry, for the accounting of events.
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

  // Until as many have been acknowledged as were taken.
  void await(const uint32_t& completed, const std::atomic<uint32_t>& taken) {
    ::pthread_mutex_lock(&mutex_);
    while (completed != taken.load()) ::pthread_cond_wait(&cond_, &mutex_);
    ::pthread_mutex_unlock(&mutex_);
  }

 private:
  pthread_mutex_t& mutex_;
  pthread_cond_t& cond_;
};

}  // namespace verbena::adapter
