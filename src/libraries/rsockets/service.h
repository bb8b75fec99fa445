// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <rdma/rdma_cma.h>

#include "base/own_fd.h"
#include "base/result.h"
#include "base/time.h"
#include "libraries/rsockets/listener_shares.h"

namespace verbena::rsockets {

// Handles the connection manager's events of one rdma_cm_id: the identifier's context points to the handler.
class CmHandler {
 public:
  virtual ~CmHandler() = default;
  // Handles one event, in the service's thread. The rdma_cm_id of the event exists until this call returns.
  // The handler must not destroy that rdma_cm_id during the call, but can use Service::retire().
  virtual void on_cm_event(const rdma_cm_event& event) = 0;
};

// Handles a readable descriptor or a periodic timer in the service's thread.
class ServiceClient {
 public:
  virtual ~ServiceClient() = default;
  virtual void on_readable() {}
  virtual void on_timer() {}
};

// The background thread of rsockets: handles connection events, reads the UDP sockets of datagram rsockets,
// and runs timers (keep-alive of streams, start of listeners). A process has at most one such thread. The
// first rsocket starts the thread, which runs until the process ends or the application closes the thread's
// descriptors. After fork(), the child has no such thread until its next rsocket starts one. The thread
// blocks all signals but those of faults. Public functions are thread-safe.
class Service {
 public:
  // Returns the service, which the first call starts. Errors: those of rdma_create_event_channel(3) and of
  // starting a thread.
  static Result<Service*> instance();

  // Returns the event channel of all identifiers of rsockets.
  rdma_event_channel* channel() { return channel_; }
  ListenerShares& listener_shares() { return listener_shares_; }

  // Calls on_readable() of the client whenever `fd` is readable, until forget() or the client's destruction.
  Result<void> watch(int fd, std::weak_ptr<ServiceClient> client);
  void forget(int fd);

  // Calls on_timer() every `period` from now on. Replaces the client's earlier timer. A period of zero only
  // stops the earlier timer.
  void set_timer(const std::shared_ptr<ServiceClient>& client, Duration period) {
    set_timer(client, period, period > Duration::zero() ? MonotonicClock::now() + period : kNever);
  }
  // Calls on_timer() once, at `when`. Events that are pending at that time are handled first. Replaces the
  // client's earlier timer; kNever only stops it.
  void call_at(const std::shared_ptr<ServiceClient>& client, TimePoint when) {
    set_timer(client, Duration::zero(), when);
  }

  // In the service's thread, releases `what` after the current event, because an identifier cannot be
  // destroyed while one of its events is handled. In any other thread, releases `what` at once.
  void retire(std::shared_ptr<void> what);

 private:
  struct Timer {
    std::weak_ptr<ServiceClient> client;
    Duration period;  // 0: once
    TimePoint next;
  };

  Service() = default;
  static Result<Service*> start();
  Result<void> open();
  Result<void> poll(int fd);
  void set_timer(const std::shared_ptr<ServiceClient>& client, Duration period, TimePoint next);
  void run();
  void handle_cm_events();
  void handle_readable(int fd);
  void handle_timers();
  int milliseconds_to_timer();

  rdma_event_channel* channel_ = nullptr;
  OwnFd epoll_;
  OwnFd wakeup_;
  ListenerShares listener_shares_;
  std::vector<std::shared_ptr<void>> retired_;  // used by the service's thread only

  std::mutex mutex_;
  std::map<int, std::weak_ptr<ServiceClient>> clients_;
  std::vector<Timer> timers_;
};

}  // namespace verbena::rsockets
