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

// What stands behind the context of an rdma_cm_id of ours.
class CmHandler {
 public:
  virtual ~CmHandler() = default;
  // In the service's thread. The identifier lives until this returns, and must not be destroyed in it.
  virtual void on_cm_event(const rdma_cm_event& event) = 0;
};

// What reads a descriptor, or does something from time to time, in the service's thread.
class ServiceClient {
 public:
  virtual ~ServiceClient() = default;
  virtual void on_readable() {}
  virtual void on_timer() {}
};

// The one thread that a process with rsockets has: it hears of connections, reads the UDP sockets of datagram
// rsockets, and sends what keeps connections alive. Made with the first rsocket, never ended, absent in the
// child after fork(), where the next rsocket makes another. It takes no signals but those of faults.
class Service {
 public:
  // Errors: those of rdma_create_event_channel(3) and of making threads.
  static Result<Service*> instance();

  // The channel of all our identifiers.
  rdma_event_channel* channel() { return channel_; }

  Result<void> watch(int fd, std::weak_ptr<ServiceClient> client);
  void forget(int fd);

  // Calls on_timer() each `period` from now on, in place of what was said before; zero: no more.
  void set_timer(const std::shared_ptr<ServiceClient>& client, Duration period);

  // Releases it as soon as no event is being handled, as an identifier cannot be destroyed while one of its
  // own events is. In another thread than the service's that is now.
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
  std::vector<std::shared_ptr<void>> retired_;  // the thread's own

  std::mutex mutex_;
  std::map<int, std::weak_ptr<ServiceClient>> clients_;
  std::vector<Timer> timers_;
};

}  // namespace verbena::rsockets
