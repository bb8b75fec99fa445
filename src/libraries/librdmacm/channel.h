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

// An event channel: the application's rdma_event_channel, and the socket pair behind it
// (control/protocol/connection_messages.h). The application reads `fd`. The agent and this process write to
// the other end.
//
// take() removes the events of an identifier that is destroyed or moves to another channel. To find them, it
// reads the socket. The other events that it reads wait in `early_`, and a token in the socket stands for
// each of them. The reader of a token gets the first event of `early_`. So the order of events is kept, each
// message in the socket yields one event, and `fd` is readable if and only if there is an event. If the
// socket is full, messages wait in this object, and are sent when others have been read. So while messages
// are unsent, the socket has a message to read.
//
// Thread-safe. A channel lives as long as an identifier uses it, even after the application destroyed it.
class Channel : public rdma_event_channel {
 public:
  static Result<std::shared_ptr<Channel>> open(uint32_t number);
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  uint32_t number() const { return number_; }
  int agents_end() const { return agents_end_.get(); }

  // Waits for the next event, and removes it from the channel. Errors: EAGAIN if there is none and the
  // application has set O_NONBLOCK on `fd`; EINTR as with read(2); EBADF if the channel is closed.
  Result<protocol::CmEvent> next();

  // post() appends an event that this process generates. Returns false if the socket is full: the caller must
  // then call flush() when agents_end() is writable. flush() returns false if events are still unsent;
  // waits_for_room() tells whether there are unsent events.
  bool post(const protocol::CmEvent& event);
  bool flush() {
    const std::lock_guard lock(mutex_);
    return flush_locked();
  }
  bool waits_for_room() {
    const std::lock_guard lock(mutex_);
    return has_unsent();
  }

  // Returns whether post() was ever called, so that events of this process may be in the channel.
  bool has_own_events() {
    const std::lock_guard lock(mutex_);
    return has_own_events_;
  }

  // Removes and returns, in order, all events for which `wanted` is true.
  std::vector<protocol::CmEvent> take(const std::function<bool(const protocol::CmEvent&)>& wanted);

  // Ends the channel, and closes the application's descriptor. While threads are in next(), the descriptor
  // stays open until the last of them leaves. Otherwise its number could be reused, and a thread about to
  // wait in next() could read from another file.
  void close();

 private:
  // Counts a thread as a reader of the channel while it is in next(). The destructor also runs if the thread
  // is cancelled (pthread_cancel(3)) in next().
  class Reading {
   public:
    explicit Reading(Channel& channel) : channel_(channel) {
      const std::lock_guard lock(channel_.mutex_);
      ++channel_.readers_;
      open_ = !channel_.closed_;
    }
    ~Reading() {
      const std::lock_guard lock(channel_.mutex_);
      --channel_.readers_;
      channel_.close_unread_locked();
    }
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;

    bool is_open() const { return open_; }

   private:
    Channel& channel_;
    bool open_;
  };

  Channel(uint32_t number, UniqueFd application, UniqueFd agent);
  // REQUIRES for the functions up to close_unread_locked(): mutex_ is held
  bool has_unsent() const { return unsent_tokens_ > 0 || !unsent_.empty(); }
  bool send_locked(const protocol::CmEvent& event);
  bool send_tokens_locked();
  bool flush_locked();
  void close_unread_locked() {
    if (closed_ && readers_ == 0) application_.reset();
  }

  const uint32_t number_;
  OwnFd application_;  // rdma_event_channel::fd
  OwnFd agents_end_;
  std::mutex mutex_;
  std::deque<protocol::CmEvent> early_;
  std::deque<protocol::CmEvent> unsent_;  // events of this process
  size_t unsent_tokens_ = 0;
  uint32_t pass_ = 0;  // calls of take()
  bool has_own_events_ = false;
  bool closed_ = false;
  uint32_t readers_ = 0;
};

}  // namespace verbena::rdmacm
