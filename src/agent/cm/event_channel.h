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

// The agent's end of a program's event channel: sends events, and keeps in order what the socket does not
// take. Of the agent's thread.
class EventChannel {
 public:
  // How many events a client, and its user, let wait.
  struct Tallies {
    size_t& client;
    size_t& user;
  };

  // `generation` is the program's number for this agent, and goes into every event; `user` is the program's.
  // REQUIRES: the tallies outlive this
  EventChannel(EventLoop& loop, uid_t user, ClientFile socket, uint32_t generation, Tallies waiting);
  ~EventChannel();
  EventChannel(const EventChannel&) = delete;
  EventChannel& operator=(const EventChannel&) = delete;

  // Never blocks. The number of the event, counted from 1.
  uint64_t send(protocol::CmEvent event);
  // The number of the last event that the program has taken out, as far as can be told.
  uint64_t taken() const;
  // How many identifiers have it: its client's account.
  size_t identifiers = 0;

  // Passes the waiting events of an identifier on to another channel, the oldest first, so many at most, and
  // answers how many.
  size_t move_events(uint32_t id, EventChannel& other, size_t most = SIZE_MAX);
  // Likewise drops them. Those of a listener are of other identifiers, and stay.
  size_t drop_events(uint32_t id, size_t most = SIZE_MAX);
  // Drops so many of those that wait at most, whosever they are, and answers how many.
  size_t drop_some(size_t most);

 private:
  // Waiting events by their numbers, which are their order.
  using Queue = std::map<uint64_t, protocol::CmEvent>;
  using Index = std::set<std::pair<uint32_t, uint64_t>>;

  // The first event of the identifier in the index, from this number on; queue_.end(): there is none.
  Queue::iterator next_of(const Index& index, uint32_t id, uint64_t from);
  void take_out(Queue::iterator event);
  bool transmit(const protocol::CmEvent& event);
  // Sends some of what waits. False: the socket is full, or nothing waits.
  bool on_writable();
  void watch(bool wanted);
  void tally(size_t more, size_t less);

  EventLoop& loop_;
  const uid_t user_;
  ClientFile socket_;  // the program may have a copy of it, and put anything into it
  const uint32_t generation_;
  const Tallies waiting_;
  bool watching_ = false;
  uint64_t sent_ = 0;     // all that send() was given
  int message_cost_ = 0;  // what one unread event counts in SIOCOUTQ
  Queue queue_;           // because the program does not read
  // Whose they are, so that nobody is looked for among all that wait.
  Index by_id_;
  Index by_listener_;  // of those that have one
};

}  // namespace verbena::agent
