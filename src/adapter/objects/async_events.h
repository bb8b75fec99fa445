// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <ctime>

#include <infiniband/verbs.h>
#include <pthread.h>

#include "adapter/queues/event_channel.h"
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

// One kind of asynchronous event of one object (for example a QP) or of the port. An AsyncEvent is a member
// of the object, so posting the event allocates no memory. If the event happens twice before the application
// takes it, the application gets it twice.
struct AsyncEvent : queues::EventSource {
  static AsyncEvent& of(queues::EventSource& source) { return static_cast<AsyncEvent&>(source); }

  ibv_async_event event{};
  std::atomic<uint32_t>* taken = nullptr;  // the object's count of events that the application has taken
};

// The asynchronous events of one object, one for each kind that the object can raise. post() puts an event
// into a channel. withdraw() removes all pending events, when the object is destroyed. Thread-safe.
template <size_t kKinds>
class AsyncEvents {
 public:
  // `prototype.element` names the object or the port. `prototype.event_type` is ignored, since each event
  // gets one of `kinds`. Acknowledged events are counted in `acknowledged`, a field of the object's C struct.
  // For the port, `account` and `acknowledged` are null: nothing waits for the acknowledgement of its events.
  AsyncEvents(const std::array<ibv_event_type, kKinds>& kinds, ibv_async_event prototype,
              EventAccount* account = nullptr, uint32_t* acknowledged = nullptr)
      : account_(account), acknowledged_(acknowledged) {
    for (size_t i = 0; i < kKinds; ++i) {
      prototype.event_type = kinds[i];
      events_[i].event = prototype;
      events_[i].taken = &taken_;
    }
  }

  // Counts one acknowledged event. REQUIRES: the events are not those of the port
  void acknowledge() { account_->acknowledge(*acknowledged_, 1); }
  // Waits until the application has acknowledged the events that it has taken (ibv_get_async_event(3)).
  void await(const char* call, const void* object) {
    account_->await(*acknowledged_, taken_, call, object, "ibv_ack_async_event");
  }

  void post(ibv_event_type kind, queues::EventChannel& channel) {
    for (AsyncEvent& event : events_) {
      if (event.event.event_type == kind) channel.post(event);
    }
  }

  void withdraw(queues::EventChannel& channel) {
    for (AsyncEvent& event : events_) channel.withdraw(event);
  }

 private:
  EventAccount* const account_;
  uint32_t* const acknowledged_;
  std::atomic<uint32_t> taken_{0};
  std::array<AsyncEvent, kKinds> events_;
};

inline constexpr std::array kCqEvents = {IBV_EVENT_CQ_ERR};
inline constexpr std::array kQpEvents = {IBV_EVENT_QP_FATAL,      IBV_EVENT_QP_REQ_ERR,
                                         IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_COMM_EST,
                                         IBV_EVENT_SQ_DRAINED,    IBV_EVENT_QP_LAST_WQE_REACHED};
inline constexpr std::array kWqEvents = {IBV_EVENT_WQ_FATAL};
inline constexpr std::array kSrqEvents = {IBV_EVENT_SRQ_ERR, IBV_EVENT_SRQ_LIMIT_REACHED};
inline constexpr std::array kPortEvents = {IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR, IBV_EVENT_GID_CHANGE,
                                           IBV_EVENT_DEVICE_FATAL};

}  // namespace verbena::adapter
