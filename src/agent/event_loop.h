// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include <sys/epoll.h>

#include "base/time.h"
#include "base/unique_fd.h"

namespace verbena::agent {

// The agent's one thread: descriptors, timers, and things to do once the current handlers have returned. All
// of it on that thread, except stop().
class EventLoop {
 public:
  using Handler = std::function<void(uint32_t epoll_events)>;
  using Task = std::function<void()>;
  using TimerId = std::pair<TimePoint, uint64_t>;

  // What a handler reads at most of one client, so that its flood leaves time for the others.
  static constexpr int kMessagesPerRound = 16;

  EventLoop();

  // REQUIRES: fd is not watched; forget(fd) comes before its close
  void watch(int fd, uint32_t events, Handler handler);
  void set_events(int fd, uint32_t events);
  void forget(int fd);

  TimerId at(TimePoint when, Task task);
  void cancel(const TimerId& timer) { timers_.erase(timer); }
  // Runs after the handlers of this round: for destroying an object from within its own handler.
  void later(Task task) { later_.push_back(std::move(task)); }
  // Runs in the next round, which waits for nothing then: for what is done little by little, so that others
  // have their turn in between.
  void in_next_round(Task task) { next_round_.push_back(std::move(task)); }

  // Round after round until it is stopped.
  void run();
  // Waits until there is something to do, and does it.
  void run_round();
  // From any thread or signal handler.
  void stop();

 private:
  struct Watch {
    uint32_t generation;
    std::shared_ptr<Handler> handler;
  };
  void dispatch(const epoll_event& event);
  void run_timers();
  void run_later();
  int timeout_ms() const;

  UniqueFd epoll_;
  UniqueFd stop_;
  bool stopped_ = false;
  uint32_t next_generation_ = 0;
  uint64_t next_timer_ = 0;
  std::unordered_map<int, Watch> watches_;
  std::map<TimerId, Task> timers_;
  std::vector<Task> later_;
  std::vector<Task> next_round_;
};

}  // namespace verbena::agent
