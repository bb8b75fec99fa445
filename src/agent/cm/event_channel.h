// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include <sys/types.h>

#include "agent/event_loop.h"
#include "agent/sessions/foreign_closer.h"
#include "control/protocol/connection_messages.h"

namespace verbena::agent {

// The agent's end of a program's event channel: sends events, and queues those that the socket does not
// accept. For the agent's thread.
class EventChannel {
 public:
  // Counts of unread events in the agent: of a client, and of its user.
  struct Tallies {
    size_t& client;
    size_t& user;
  };

  // `generation`: the program's number for this agent, which goes into every event. `user`: the program's.
  // REQUIRES: the tallies outlive this object
  EventChannel(EventLoop& loop, uid_t user, ClientFile socket, uint32_t generation, Tallies waiting);
  ~EventChannel();
  EventChannel(const EventChannel&) = delete;
  EventChannel& operator=(const EventChannel&) = delete;

  // Sends or queues the event; never blocks. Returns its number, counted from 1.
  uint64_t send(protocol::CmEvent event);
  // Returns the number of the last event that the program has received, as far as the kernel tells.
  uint64_t taken() const;
  // The number of identifiers that use the channel; kept by the client.
  size_t identifiers = 0;

  // Moves up to `most` queued events of an identifier to another channel, the oldest first. Returns their
  // number.
  size_t move_events(uint32_t id, EventChannel& other, size_t most = SIZE_MAX);
  // Drops up to `most` queued events of the identifier and returns their number. Events of a listener belong
  // to other identifiers and stay.
  size_t drop_events(uint32_t id, size_t most = SIZE_MAX);
  // Drops up to `most` queued events of any identifier. Returns their number.
  size_t drop_some(size_t most);

 private:
  // Queued events by number, which is their order.
  using Queue = std::map<uint64_t, protocol::CmEvent>;
  using Index = std::set<std::pair<uint32_t, uint64_t>>;

  // The first event of the identifier in the index, from this number on; queue_.end(): there is none.
  Queue::iterator next_of(const Index& index, uint32_t id, uint64_t from);
  void take_out(Queue::iterator event);
  bool transmit(const protocol::CmEvent& event);
  // Sends some queued events. False: the socket is full, or none are left.
  bool on_writable();
  void watch(bool wanted);
  void tally(size_t more, size_t less);

  EventLoop& loop_;
  const uid_t user_;
  ClientFile socket_;  // the program may have a copy of it, and write anything to it
  const uint32_t generation_;
  const Tallies waiting_;
  bool watching_ = false;
  uint64_t sent_ = 0;     // events passed to send()
  int message_cost_ = 0;  // bytes of an unread event in SIOCOUTQ
  Queue queue_;           // events that the socket did not accept
  // Indexes into the queue, which avoid a search through all events.
  Index by_id_;
  Index by_listener_;  // events that have a listener
};

}  // namespace verbena::agent
