// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include <infiniband/verbs.h>

#include "adapter/queues/event_channel.h"

namespace verbena::adapter {

// One kind of asynchronous event of one object (for example a QP) or of the port. An AsyncEvent is a member
// of the object, so posting the event allocates no memory. If the event happens twice before the application
// takes it, the application gets it twice.
struct AsyncEvent : queues::EventSource {
  static AsyncEvent& of(queues::EventSource& source) { return static_cast<AsyncEvent&>(source); }

  ibv_async_event event{};
  // The object's count of events that the application has taken. All taken events must be acknowledged before
  // the object can be destroyed. Null for events of the port.
  std::atomic<uint32_t>* taken = nullptr;
};

// The asynchronous events of one object, one for each kind that the object can raise. post() puts an event
// into a channel. withdraw() removes all pending events, when the object is destroyed. Thread-safe.
template <size_t kKinds>
class AsyncEvents {
 public:
  // `prototype.element` names the object or the port. `prototype.event_type` is ignored, since each event
  // gets one of `kinds`.
  AsyncEvents(const std::array<ibv_event_type, kKinds>& kinds, ibv_async_event prototype,
              std::atomic<uint32_t>* taken) {
    for (size_t i = 0; i < kKinds; ++i) {
      prototype.event_type = kinds[i];
      events_[i].event = prototype;
      events_[i].taken = taken;
    }
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

// Takes the oldest asynchronous event from the channel (ibv_get_async_event(3)). Blocks while there is none,
// unless the channel's descriptor is O_NONBLOCK. Returns 0 or an errno value.
int get_async_event(queues::EventChannel& channel, ibv_async_event* event);

// Acknowledges the event (ibv_ack_async_event(3)). The call that destroys the event's object waits for this.
// For events of the port, nothing happens.
void acknowledge_async_event(const ibv_async_event& event);

}  // namespace verbena::adapter
