// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include <sys/epoll.h>
#include <sys/types.h>

#include "agent/sessions/user_turns.h"
#include "base/time.h"
#include "base/unique_fd.h"

namespace verbena::agent {

// The agent's event loop: watches descriptors, runs timers, and runs tasks after the current handlers have
// returned. For one thread, except stop().
//
// Work that a user's programs cause runs in that user's turns (UserTurns). Kernel notifications, timers and
// network packets are handled in each round.
class EventLoop {
 public:
  using Handler = std::function<void(uint32_t epoll_events)>;
  // Handles a small piece of work, such as one message. Returns whether there may be more to handle.
  using PieceHandler = std::function<bool(uint32_t epoll_events)>;
  using Task = std::function<void()>;
  using TimerId = std::pair<TimePoint, uint64_t>;

  // Time limit per round for users' work, and for timers, before the loop checks all descriptors again.
  static constexpr Duration kPerRound = std::chrono::microseconds(50);

  // With `per_round` zero, each round runs one piece of users' work and one timer. `clock` measures users'
  // work.
  explicit EventLoop(Duration per_round = kPerRound, UserTurns::Clock clock = MonotonicClock::now);

  // REQUIRES: fd is not watched; forget(fd) is called before fd is closed
  void watch(int fd, uint32_t events, Handler handler);
  // Like watch(), but the handler runs in turns of the user that causes the events. It is called until it
  // returns false, and again at the next event.
  void watch_for(uid_t user, int fd, uint32_t events, PieceHandler handler);
  void set_events(int fd, uint32_t events);
  void forget(int fd);

  TimerId at(TimePoint when, Task task);
  void cancel(const TimerId& timer) { timers_.erase(timer); }
  // Runs the task after the handlers of this round, for destroying an object from within its own handler.
  void later(Task task) { later_.push_back(std::move(task)); }
  // Runs the task in the next round, which does not sleep. For long work done in pieces, so that other work
  // runs in between.
  void in_next_round(Task task) { next_round_.push_back(std::move(task)); }

  // Adds work that runs in the user's turns.
  void in_turn_of(uid_t user, UserTurns::Piece piece) { turns_.add(user, std::move(piece)); }
  // Whether work of the user is queued.
  bool has_work_for(uid_t user) const { return turns_.has(user); }

  // Runs rounds until stop().
  void run();
  // Waits for events or timers, then handles them.
  void run_round();
  // May be called from any thread or signal handler.
  void stop();

 private:
  struct Watch {
    uint32_t generation = 0;
    uint32_t flags = 0;  // EPOLLET for watch_for(), else 0
    std::shared_ptr<Handler> handler;
  };
  // State of a watch_for() watch.
  struct Pending {
    PieceHandler handler;
    uint32_t events = 0;
    bool is_queued = false;
  };
  void add_watch(int fd, uint32_t events, uint32_t flags, Handler handler);
  bool is_watched(int fd, uint32_t generation) const;
  void dispatch(const epoll_event& event);
  void run_timers();
  void run_later();
  int timeout_ms() const;

  const Duration per_round_;
  const UserTurns::Clock clock_;
  UniqueFd epoll_;
  UniqueFd stop_;
  bool stopped_ = false;
  uint32_t next_generation_ = 0;
  uint64_t next_timer_ = 0;
  std::unordered_map<int, Watch> watches_;
  std::map<TimerId, Task> timers_;
  std::vector<Task> later_;
  std::vector<Task> next_round_;
  UserTurns turns_;
};

}  // namespace verbena::agent
