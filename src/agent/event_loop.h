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

// The agent's one thread: descriptors, timers, and things to do once the current handlers have returned. All
// of it on that thread, except stop().
//
// Work that a user's programs cause is done in that user's turns (UserTurns). The kernel's news, timers and
// network packets are handled in each round.
class EventLoop {
 public:
  using Handler = std::function<void(uint32_t epoll_events)>;
  // Handles a little, such as one message. True: there may be more to handle.
  using PieceHandler = std::function<bool(uint32_t epoll_events)>;
  using Task = std::function<void()>;
  using TimerId = std::pair<TimePoint, uint64_t>;

  // After so much of users' work, and of timers, the loop looks again who else has something to do.
  static constexpr Duration kPerRound = std::chrono::microseconds(50);

  // `per_round` zero: one piece of users' work, and one timer, in each round. `clock` measures users' work.
  explicit EventLoop(Duration per_round = kPerRound, UserTurns::Clock clock = MonotonicClock::now);

  // REQUIRES: fd is not watched; forget(fd) comes before its close
  void watch(int fd, uint32_t events, Handler handler);
  // The same in turns of the user who causes the events. The handler is called until it returns false, and
  // again when there is something new.
  void watch_for(uid_t user, int fd, uint32_t events, PieceHandler handler);
  void set_events(int fd, uint32_t events);
  void forget(int fd);

  TimerId at(TimePoint when, Task task);
  void cancel(const TimerId& timer) { timers_.erase(timer); }
  // Runs after the handlers of this round: for destroying an object from within its own handler.
  void later(Task task) { later_.push_back(std::move(task)); }
  // Runs in the next round, which waits for nothing then: for what is done little by little, so that others
  // have their turn in between.
  void in_next_round(Task task) { next_round_.push_back(std::move(task)); }

  // Work for a user, in its turns.
  void in_turn_of(uid_t user, UserTurns::Piece piece) { turns_.add(user, std::move(piece)); }
  // Whether such work waits.
  bool has_work_for(uid_t user) const { return turns_.has(user); }

  // Round after round until it is stopped.
  void run();
  // Waits until there is something to do, and does it.
  void run_round();
  // From any thread or signal handler.
  void stop();

 private:
  struct Watch {
    uint32_t generation = 0;
    uint32_t flags = 0;  // EPOLLET, in turns of a user
    std::shared_ptr<Handler> handler;
  };
  // The state of a watch in its user's turns.
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
