// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include <rdma/rdma_cma.h>

#include "base/own_fd.h"
#include "base/result.h"
#include "control/protocol/connection_messages.h"

namespace verbena::rdmacm {

// An event channel: what the application knows as rdma_event_channel, and the pair of sockets behind it
// (control/protocol/connection_messages.h). The application reads `fd`; the other end is the agent's, and
// ours.
//
// Taking events back out (for an identifier that is destroyed or moves to another channel) must not lose the
// order of the others, nor make a descriptor readable that has nothing to read, or the other way round. So
// what was read too early waits in `early_`, and for each of them there is a token in the socket: a message
// that says nothing but "one of those that wait". Whatever is read from the socket is then worth one event.
//
// Any thread may call anything. It lives as long as an identifier uses it, even when the application has
// destroyed it already.
class Channel : public rdma_event_channel {
 public:
  static Result<std::shared_ptr<Channel>> open(uint32_t number);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  uint32_t number() const { return number_; }
  int agents_end() const { return agents_end_.get(); }

  // The next event. Waits unless the application has set O_NONBLOCK (EAGAIN); EINTR as read(2) has it; EBADF
  // when it is closed.
  Result<protocol::CmEvent> next();

  // Adds an event of our own at the end. False: there is no room now, and flush() is to be called when
  // agents_end() is writable.
  bool post(const protocol::CmEvent& event);
  bool flush();
  bool waits_for_room();

  // Some events in it may be of our own making.
  bool has_own_events();

  // Takes all events out for which `wanted` holds, in order.
  std::vector<protocol::CmEvent> take(const std::function<bool(const protocol::CmEvent&)>& wanted);

  // No more events. The application's descriptor is closed, by the last reader if there are any: one that is
  // about to wait must not find another file under its number, and read what is not ours.
  void close();

 private:
  // A thread in next(), which may be cancelled there.
  class Reading {
   public:
    explicit Reading(Channel& channel);
    ~Reading();
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;

    bool is_open() const { return open_; }

   private:
    Channel& channel_;
    bool open_;
  };

  Channel(uint32_t number, UniqueFd application, UniqueFd agent);
  bool flush_locked();
  void post_locked(const protocol::CmEvent& event);
  void close_unread_locked();

  const uint32_t number_;
  OwnFd application_;  // rdma_event_channel::fd
  OwnFd agents_end_;
  std::mutex mutex_;
  std::deque<protocol::CmEvent> early_;
  std::deque<protocol::CmEvent> unsent_;
  bool has_own_events_ = false;
  bool closed_ = false;
  uint32_t readers_ = 0;
};

}  // namespace verbena::rdmacm
