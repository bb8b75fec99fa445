// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include <sys/epoll.h>
#include <sys/types.h>

#include "agent/user_timers.h"
#include "agent/user_turns.h"
#include "base/intrusive_list.h"
#include "base/processor_clock.h"
#include "base/time.h"
#include "base/unique_fd.h"

namespace verbena::agent {

// The agent's event loop: watches descriptors, runs timers, and runs tasks after the current handlers have
// returned. For one thread, except stop().
//
// Works in rounds: run_round() polls the descriptors once. Work that a user's programs cause is divided
// fairly among users (UserTurns). Kernel notifications, network packets and the agent's own timers do not
// wait for a user's turn. Timers of a user's objects do. If a handler, task or piece of work throws
// std::bad_alloc, the loop goes on with the next one.
class EventLoop {
 public:
  using Handler = std::function<void(uint32_t epoll_events)>;
  // Handles a small piece of work, such as one message. Returns whether there may be more to handle.
  using PieceHandler = std::function<bool(uint32_t epoll_events)>;
  using Task = std::function<void()>;
  using TimerId = std::pair<TimePoint, uint64_t>;

  // Time limit per round for users' work. Timers have a limit of their own, of the same length. After both,
  // the loop polls all descriptors again.
  static constexpr Duration kPerRound = std::chrono::microseconds(50);
  // Maximum time until work that was left undone for lack of memory is tried again.
  static constexpr Duration kPauseWithoutMemory = std::chrono::milliseconds(100);

  // If `per_round` is zero, each round runs one piece of users' work and one timer. `clock` and `processor`
  // measure the time that users' work takes.
  explicit EventLoop(Duration per_round = kPerRound, UserTurns::Clock clock = MonotonicClock::now,
                     UserTurns::Clock processor = ProcessorClock::now);

  // Calls `handler` in each round in which `fd` has one of `events` (level-triggered epoll). Throws
  // std::bad_alloc if the kernel has no memory for another watch or the agent's user has too many
  // (fs.epoll.max_user_watches). Throws std::system_error if epoll refuses the descriptor. If the method
  // throws, nothing has changed. REQUIRES: fd is not watched; forget(fd) is called before fd is closed
  void watch(int fd, uint32_t events, Handler handler);
  // Like watch(), but calls the handler in the turns of `user`, whose programs cause the events. Repeats the
  // call in these turns until the handler returns false, and starts again at the next event (edge-triggered).
  // Also repeats the call, with the same events, if the handler throws std::bad_alloc.
  void watch_for(uid_t user, int fd, uint32_t events, PieceHandler handler);
  void set_events(int fd, uint32_t events);
  void forget(int fd);

  // Runs the task at this time. For timers of the agent itself, which do not wait until users' queued work is
  // done. If the time has passed, the task runs after all timers that were due when the loop last ran timers.
  // So a task that always sets itself again delays no other timer.
  TimerId at(TimePoint when, Task task);
  void cancel(const TimerId& timer) { timers_.erase(timer); }
  // Runs the task in a turn of the user, at this time or later. For timers of a user's objects.
  UserTimers::Id at_for(uid_t user, TimePoint when, Task task) {
    return user_timers_.at(user, when, std::move(task));
  }
  void cancel(const UserTimers::Id& timer) { user_timers_.cancel(timer); }
  // A task that its owner queues again and again. The task runs once at the end of a round in which it was
  // queued. Queueing needs no memory, so it cannot fail. If the task throws std::bad_alloc, it runs again in
  // the next round. REQUIRES: the task can be run again after it threw; the loop outlives this object
  class QueuedTask {
   public:
    QueuedTask(EventLoop& loop, Task task) : loop_(loop), task_(std::move(task)) {}
    void queue() {
      if (!hook_.is_linked()) loop_.queued_.push_back(*this);
    }

   private:
    friend class EventLoop;
    EventLoop& loop_;
    const Task task_;
    ListHook hook_;
  };
  // Runs the task at the end of this round. A handler uses this to destroy its own object.
  void later(Task task) { later_.push_back(std::move(task)); }
  // Runs the task in the next round, which does not sleep. A long job queues its next piece this way, so that
  // other work runs in between.
  void in_next_round(Task task) { next_round_.push_back(std::move(task)); }

  // Queues a piece of work for the user's turns. Repeats the piece until it returns false.
  void in_turn_of(uid_t user, UserTurns::Piece piece) { turns_.add(user, std::move(piece)); }
  // Calls `send`, which sends a message to a socket of the user or receives one from the user. The time that
  // the call takes counts as the user's, because the user can make it long (UserTurns::call_for()). All such
  // calls go through send_to() or try_send_to().
  void send_to(uid_t user, const UserTurns::Call& send) {
    turns_.call_for(user, send, UserTurns::kSlowMessage);
  }
  // Like send_to(), but returns false without calling `send` while the user pauses (SlowUsers).
  bool try_send_to(uid_t user, const UserTurns::Call& send) {
    return turns_.try_for(user, send, UserTurns::kSlowMessage);
  }
  // UserTurns::on_pause() and pardon().
  void on_pause(std::function<void(TimePoint end)> task) { turns_.on_pause(std::move(task)); }
  void pardon(Duration excess) { turns_.pardon(excess); }
  // Returns whether work of the user is queued.
  bool has_work_for(uid_t user) const { return turns_.has(user); }

  // Runs rounds until stop().
  void run();
  // Sleeps until a descriptor has events, a timer expires or work is queued, then handles these once.
  void run_round();
  // Makes run() return after the current round. May be called from any thread or signal handler.
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
    bool is_undone = false;  // there was no memory to queue or to handle the events
  };
  void add_watch(int fd, uint32_t events, uint32_t flags, Handler handler);
  bool is_watched(int fd, uint32_t generation) const;
  void dispatch(const epoll_event& event);
  void try_again_later() { try_again_ = std::min(try_again_, MonotonicClock::now() + kPauseWithoutMemory); }
  void queue_again();
  void run_timers();
  void run_later();
  int timeout_ms() const;

  const Duration per_round_;
  const UserTurns::Clock clock_;
  UserTurns turns_;
  UserTimers user_timers_{turns_};
  UniqueFd epoll_;
  UniqueFd stop_;
  bool stopped_ = false;
  uint32_t next_generation_ = 0;
  uint64_t next_timer_ = 0;
  TimePoint earliest_{};  // minimum time of a new timer: after all that were due at the last run_timers()
  std::unordered_map<int, Watch> watches_;
  std::map<TimerId, Task> timers_;
  std::vector<Task> later_;
  IntrusiveList<QueuedTask, &QueuedTask::hook_> queued_;
  TimePoint try_again_ = kNever;  // when work is queued again that was left undone for lack of memory
  std::vector<Task> next_round_;
};

// A single event-loop timer for an object with many deadlines. The timer calls `on_timer` at the earliest
// deadline, and the object then calls arm() with its next deadline. The last action of `on_timer` may destroy
// the timer. For the agent's thread only.
class DeadlineTimer {
 public:
  // A timer of the agent itself.
  DeadlineTimer(EventLoop& loop, std::function<void()> on_timer)
      : loop_(loop), on_timer_(std::move(on_timer)) {}
  // A timer of an object of the user, which runs in the user's turns.
  DeadlineTimer(EventLoop& loop, uid_t user, std::function<void()> on_timer)
      : loop_(loop), user_(user), on_timer_(std::move(on_timer)) {}
  ~DeadlineTimer() { cancel(); }
  DeadlineTimer(const DeadlineTimer&) = delete;
  DeadlineTimer& operator=(const DeadlineTimer&) = delete;

  // Makes the timer call `on_timer` at `deadline` or earlier. If the timer is set for an earlier time, keeps
  // that time: an early call costs less than moving the timer whenever a deadline is extended. kNever neither
  // sets nor cancels a timer.
  void arm(TimePoint deadline) {
    if (armed_for_ <= deadline) return;
    const auto run = [this] {
      armed_for_ = kNever;
      if (!survive_lack_of_memory(on_timer_)) arm(MonotonicClock::now() + EventLoop::kPauseWithoutMemory);
    };
    if (user_) {
      loop_.cancel(std::exchange(in_turns_, loop_.at_for(*user_, deadline, run)));
    } else {
      loop_.cancel(std::exchange(timer_, loop_.at(deadline, run)));
    }
    armed_for_ = deadline;
  }
  void cancel() {
    armed_for_ = kNever;
    if (user_) {
      loop_.cancel(in_turns_);
    } else {
      loop_.cancel(timer_);
    }
  }

 private:
  EventLoop& loop_;
  const std::optional<uid_t> user_;
  const std::function<void()> on_timer_;
  TimePoint armed_for_ = kNever;
  EventLoop::TimerId timer_{};  // if there is no user_
  UserTimers::Id in_turns_;     // if there is a user_
};

}  // namespace verbena::agent
