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
#include "base/quota.h"
#include "control/protocol/connection_messages.h"

namespace verbena::agent {

// The agent's end of a program's event channel: sends events, and queues those that do not fit into the
// socket. For the agent's thread.
class EventChannel {
 public:
  // Counters of events queued in the agent: of the client, and of all users. The channel updates both.
  struct Tallies {
    size_t& client;
    Quota& users;
  };

  // `user`: the program's user. `socket`: the agent's end. `generation`: CmChannelRequest::generation, which
  // is copied into every event. REQUIRES: the counters in `waiting` outlive this object
  EventChannel(EventLoop& loop, uid_t user, ClientFile socket, uint32_t generation, Tallies waiting);
  ~EventChannel();
  EventChannel(const EventChannel&) = delete;
  EventChannel& operator=(const EventChannel&) = delete;

  // Sends or queues the event; never blocks. Returns the event's number on this channel, counted from 1.
  uint64_t send(protocol::CmEvent event);
  // Returns the number of the last event that the program has read, estimated from the unread bytes in the
  // socket. Messages that the program itself has written make the estimate too low.
  uint64_t taken() const;
  // Number of identifiers that use the channel, updated by the owner of the identifiers.
  size_t identifiers = 0;

  // Moves up to `most` queued events of an identifier to another channel, the oldest first. For a listener,
  // these include CONNECT_REQUEST events. Returns the number of moved events.
  size_t move_events(uint32_t id, EventChannel& other, size_t most = SIZE_MAX);
  // Drops up to `most` queued events about the identifier, the oldest first. Returns their number.
  // CONNECT_REQUEST events of a listener are about other identifiers and stay.
  size_t drop_events(uint32_t id, size_t most = SIZE_MAX);
  // Drops up to `most` queued events of any identifier, the oldest first. Returns their number.
  size_t drop_some(size_t most);

 private:
  // Queued events by number, which is their order.
  using Queue = std::map<uint64_t, protocol::CmEvent>;
  using Index = std::set<std::pair<uint32_t, uint64_t>>;

  // Returns the first event of the identifier in the index with number `from` or higher, or queue_.end().
  Queue::iterator next_of(const Index& index, uint32_t id, uint64_t from);
  void take_out(Queue::iterator event);
  bool transmit(const protocol::CmEvent& event);
  // Sends up to 16 queued events. Returns false if the socket is full or no events are left.
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
  int message_cost_ = 0;  // bytes that SIOCOUTQ counts for an unread event; 0: not measured yet
  Queue queue_;           // events that the socket did not accept
  // Indexes into the queue, which avoid a search through all events.
  Index by_id_;
  Index by_listener_;  // events that have a listener
};

}  // namespace verbena::agent
