// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <rdma/rdma_cma.h>

#include "base/own_fd.h"
#include "base/result.h"
#include "base/time.h"

namespace verbena::rsockets {

// Handles the connection manager's events of one rdma_cm_id: the identifier's context points to the handler.
class CmHandler {
 public:
  virtual ~CmHandler() = default;
  // Called in the service's thread. The identifier lives until the call returns, and must not be destroyed
  // within it.
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
// and runs keep-alive timers. A process has at most one, started with its first rsocket and never ended. A
// child after fork() has none until its next rsocket starts one. The thread blocks all signals but those of
// faults. Public functions are thread-safe.
class Service {
 public:
  // Returns the service, which the first call starts. Errors: those of rdma_create_event_channel(3) and of
  // starting a thread.
  static Result<Service*> instance();

  // The event channel of all identifiers of rsockets.
  rdma_event_channel* channel() { return channel_; }

  // Calls on_readable() of the client whenever `fd` is readable, until forget().
  Result<void> watch(int fd, std::weak_ptr<ServiceClient> client);
  void forget(int fd);

  // Calls on_timer() every `period` from now on. Replaces the client's earlier timer; zero stops it.
  void set_timer(const std::shared_ptr<ServiceClient>& client, Duration period);

  // Releases the object after the current event: an identifier cannot be destroyed while one of its events is
  // handled. In any other thread than the service's, releases it at once.
  void retire(std::shared_ptr<void> what);

 private:
  struct Timer {
    std::weak_ptr<ServiceClient> client;
    Duration period;
    TimePoint next;
  };

  Service() = default;
  static Result<Service*> start();
  Result<void> open();
  void run();
  void handle_cm_events();
  void handle_readable(int fd);
  void handle_timers();
  int milliseconds_to_timer();
  void wake();

  rdma_event_channel* channel_ = nullptr;
  OwnFd epoll_;
  OwnFd wakeup_;
  std::vector<std::shared_ptr<void>> retired_;  // used by the service's thread only

  std::mutex mutex_;
  std::map<int, std::weak_ptr<ServiceClient>> clients_;
  std::vector<Timer> timers_;
};

}  // namespace verbena::rsockets
