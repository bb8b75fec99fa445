// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "agent/event_loop.h"
#include "base/unique_fd.h"
#include "control/cm_protocol.h"

namespace verbena::agent {

// The agent's end of a program's event channel: sends events, and keeps in order what the socket does not
// take. Of the agent's thread.
class EventChannel {
 public:
  // `generation` is the program's word for us, and goes into every event.
  EventChannel(EventLoop& loop, UniqueFd socket, uint32_t generation);
  ~EventChannel();
  EventChannel(const EventChannel&) = delete;
  EventChannel& operator=(const EventChannel&) = delete;

  // Never blocks. The number of the event, counted from 1.
  uint64_t send(control::CmEvent event);
  // The number of the last event that the program has taken out, as far as can be told.
  uint64_t taken() const;
  // Kept here because the program does not read.
  size_t waiting() const { return queue_.size(); }
  // Passes the waiting events of an identifier on to another channel.
  void move_events(uint32_t id, EventChannel& other);
  // How many there were. Those of a listener are of other identifiers, and stay.
  size_t drop_events(uint32_t id);

 private:
  bool transmit(const control::CmEvent& event);
  void on_writable();
  void watch(bool wanted);

  EventLoop& loop_;
  UniqueFd socket_;
  const uint32_t generation_;
  bool watching_ = false;
  uint64_t sent_ = 0;     // all that send() was given
  int message_cost_ = 0;  // what one unread event counts in SIOCOUTQ
  std::deque<control::CmEvent> queue_;
};

}  // namespace verbena::agent
