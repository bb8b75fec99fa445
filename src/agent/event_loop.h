// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include <sys/epoll.h>
#include <sys/types.h>

#include "base/intrusive_list.h"
#include "base/log.h"
#include "base/processor_clock.h"
#include "base/time.h"
#include "base/unique_fd.h"

namespace verbena::agent {

// Does one piece of the agent's work: of a user, a timer or a packet. If the memory for it runs out
// (std::bad_alloc), the rest of the piece is not done, and the agent goes on with other work. Returns false
// then.
template <class Work>
bool survive_lack_of_memory(const Work& work) {
  try {
    work();
    return true;
  } catch (const std::bad_alloc&) {
  }
  try {
    log_warning("out of memory: a piece of work is left undone");
  } catch (const std::bad_alloc&) {  // nor for the log
  }
  return false;
}

// Marks this thread as acting for a user while the object exists. Lines that the thread logs count against
// the user's share of the log (LogLimit).
class ActingFor {
 public:
  explicit ActingFor(uid_t user) : before_(std::exchange(current_, user)) {}
  ~ActingFor() { current_ = before_; }
  ActingFor(const ActingFor&) = delete;
  ActingFor& operator=(const ActingFor&) = delete;

  // Returns the user for whom this thread acts, or nullopt if the thread acts for the agent itself.
  static std::optional<uid_t> user() { return current_; }

 private:
  static inline thread_local std::optional<uid_t> current_;
  const std::optional<uid_t> before_;
};

// Finds users whose work takes long, and has them pause. Users can make the agent's short system calls long:
// a message wakes all watches of the receiver's end within the sender's call, and the receiver may have any
// number of them (epoll(7), fcntl(2) with F_SETOWN). With 150,000 a message takes 50 ms. Nothing but the time
// that a call takes shows that. A user may end sessions and begin others, so the pauses are the user's.
//
// Work may also take long because another thread had the processor. So after the first work that took long,
// the caller measures the user's work by processor time. Reading that clock is a system call, which other
// users' work does without.
//
// Has no clock: the caller measures. For one thread.
class SlowUsers {
 public:
  // A user's slow work takes at most a hundredth of the time: the user pauses for this many times the work's
  // duration.
  static constexpr int kPause = 100;
  // A pause begins after this many pieces of slow work while the user is suspect. The processor time of a
  // single one may be that of interrupts, which others cause.
  static constexpr int kMinSlow = 3;

  // Work of this duration or longer is slow.
  explicit SlowUsers(Duration slow) : slow_(slow) {}

  // Returns whether the user's work must be measured by processor time: during pauses, and for as long after
  // them.
  bool is_suspect(uid_t user, TimePoint now) { return find(user, now) != nullptr; }
  // Notes work that has ended now. Slow work that was measured by processor time begins a pause, from the
  // third on (kMinSlow). Root and the agent's own user have none. Returns whether the work began a pause.
  bool note(uid_t user, Duration duration, bool by_processor, TimePoint now);
  // Returns the end of the user's pause, or `now` if the user has none.
  TimePoint paused_until(uid_t user, TimePoint now);
  bool empty() const { return users_.empty(); }

 private:
  struct State {
    TimePoint suspect_until{};
    TimePoint paused_until{};
    int slow = 0;  // slow work by processor time, while suspect
  };
  const State* find(uid_t user, TimePoint now);

  const Duration slow_;
  std::map<uid_t, State> users_;
};

// Divides the agent's time among users: deficit round robin, in which users that had no work go first
// (FQ-CoDel, RFC 8290, 4.2). A user's share does not depend on its number of connections, nor on how long its
// requests take. A user with little work waits for at most one piece of another user's work, whatever the
// others have queued. Pieces of a user whose pieces are slow wait for the end of a pause (SlowUsers).
//
// For the agent's thread.
class UserTurns {
 public:
  // A short piece of work. Returns whether more of it is left for the user's next turn.
  using Piece = std::function<bool()>;
  using Clock = std::function<TimePoint()>;

  // Time that a user's work may take per turn.
  static constexpr Duration kQuantum = std::chrono::microseconds(200);
  // The longest piece of the agent's work takes 2 ms, unless a user makes it longer.
  static constexpr Duration kSlow = std::chrono::milliseconds(10);

  // `processor`: returns the processor time that this thread has used. Pieces of `slow` or more are slow.
  explicit UserTurns(Clock clock = MonotonicClock::now, Clock processor = ProcessorClock::now,
                     Duration slow = kSlow)
      : clock_(std::move(clock)), processor_(std::move(processor)), slow_(slow) {}

  // Queues the piece after the user's earlier ones. If this throws std::bad_alloc, nothing has changed.
  void add(uid_t user, Piece piece);
  // Runs at least one piece, if there is any, and stops when none is left or `most` has passed. Pieces may
  // add others.
  void run(Duration most);
  // Makes a short call for the user outside of the user's turns. Its time counts as the user's, also where it
  // is part of another user's piece. Returns false without the call while the user pauses.
  bool try_for(uid_t user, const std::function<void()>& call);
  // Makes a call within a piece, or within try_for(). Its time counts as the user's, but begins no pause:
  // others can make it long.
  void without_blame(const std::function<void()>& call);

  // Returns whether no piece can run now.
  bool empty() const { return pieces_ == 0; }
  // Returns when the first pause ends for which pieces wait; kNever if there is none.
  TimePoint pause_end() const;
  bool is_paused(uid_t user) const { return paused_.contains(user); }
  // Returns whether a piece of the user was slow not long ago (SlowUsers).
  bool is_suspect(uid_t user) { return !slow_.empty() && slow_.is_suspect(user, clock_()); }
  bool has(uid_t user) const;

 private:
  struct User {
    std::list<Piece> pieces;
    Duration credit{};  // time left in this turn; below zero, it is taken off the next turns
  };

  struct Paused {
    TimePoint until;
    std::list<Piece> pieces;
  };
  // A reading of the clocks before a user's work.
  struct Begun {
    TimePoint at;
    TimePoint used;  // processor time, if that measures the work
    bool by_processor;
  };

  Begun begin(uid_t user, TimePoint now);
  // Notes the end of the user's work, without `not_its`, the time within it that others have caused.
  void end(uid_t user, const Begun& begun, TimePoint now, Duration not_its);
  void pause(uid_t user, TimePoint now);
  void end_pauses(TimePoint now);
  // Adds pieces of a user that does not pause. If this throws std::bad_alloc, nothing has changed.
  void enqueue(uid_t user, std::list<Piece>& added);
  void put_back(uid_t user, std::list<Piece>& piece);
  // Returns the user whose turn it is. REQUIRES: there are pieces
  uid_t choose();
  void move_to_end_of_old(std::list<uid_t>& from);

  const Clock clock_;
  const Clock processor_;
  SlowUsers slow_;
  std::map<uid_t, Paused> paused_;
  Duration elsewhere_{};  // time of the piece that runs, in calls for other users
  Duration blameless_{};  // time of the piece or call that runs, in without_blame() or noted already
  // Lists, because a move from one to another takes no memory.
  std::map<uid_t, User> users_;  // users in `new_` or `old_`
  std::list<uid_t> new_;         // users that had no work until now
  std::list<uid_t> old_;         // users after their first turn
  size_t pieces_ = 0;            // without those of paused users
};

// The agent's event loop: watches descriptors, runs timers, and runs tasks after the current handlers have
// returned. For one thread, except stop().
//
// Works in rounds: run_round() polls the descriptors once. Work that a user's programs cause is divided
// fairly among users (UserTurns). Kernel notifications, network packets and timers do not wait for a user's
// turn. A handler, task or piece of work that throws std::bad_alloc ends, and the loop goes on.
class EventLoop {
 public:
  using Handler = std::function<void(uint32_t epoll_events)>;
  // Handles a small piece of work, such as one message. Returns whether there may be more to handle.
  using PieceHandler = std::function<bool(uint32_t epoll_events)>;
  using Task = std::function<void()>;
  using TimerId = std::pair<TimePoint, uint64_t>;

  // Time limit in a round for users' work, and again for timers. Then the loop polls all descriptors again.
  static constexpr Duration kPerRound = std::chrono::microseconds(50);
  // Maximum time until work that was left undone for lack of memory is tried again.
  static constexpr Duration kPauseWithoutMemory = std::chrono::milliseconds(100);

  // If `per_round` is zero, each round runs one piece of users' work and one timer. `clock` and `processor`
  // measure the time that users' work takes.
  explicit EventLoop(Duration per_round = kPerRound, UserTurns::Clock clock = MonotonicClock::now,
                     UserTurns::Clock processor = ProcessorClock::now);

  // Calls `handler` in each round in which `fd` has one of `events` (level-triggered epoll). Throws
  // std::bad_alloc if the kernel has no memory for it, std::system_error if epoll refuses the descriptor.
  // Nothing has changed then. REQUIRES: fd is not watched; forget(fd) is called before fd is closed
  void watch(int fd, uint32_t events, Handler handler);
  // Like watch(), but calls the handler in the turns of `user`, whose programs cause the events. Repeats the
  // call in these turns until the handler returns false, and starts again at the next event (edge-triggered).
  // Also repeats the call, with the same events, if the handler throws std::bad_alloc.
  void watch_for(uid_t user, int fd, uint32_t events, PieceHandler handler);
  void set_events(int fd, uint32_t events);
  void forget(int fd);

  TimerId at(TimePoint when, Task task);
  void cancel(const TimerId& timer) { timers_.erase(timer); }
  // A task that its owner queues again and again. It runs once at the end of a round in which it was queued.
  // Queueing it takes no memory, so that it cannot fail. If the task throws std::bad_alloc, it runs again in
  // the next round. REQUIRES: the task may run twice; the loop outlives this object
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
  // Makes a short call for the user outside of the user's turns: UserTurns::try_for().
  bool try_for(uid_t user, const std::function<void()>& call) { return turns_.try_for(user, call); }
  // Whether work of the user is queued.
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
  UniqueFd epoll_;
  UniqueFd stop_;
  bool stopped_ = false;
  uint32_t next_generation_ = 0;
  uint64_t next_timer_ = 0;
  std::unordered_map<int, Watch> watches_;
  std::map<TimerId, Task> timers_;
  std::vector<Task> later_;
  IntrusiveList<QueuedTask, &QueuedTask::hook_> queued_;
  TimePoint try_again_ = kNever;  // when work is queued again that was left undone for lack of memory
  std::vector<Task> next_round_;
};

// A single event-loop timer for an object with many deadlines. The timer calls `on_timer` at the earliest
// one, and the object then calls arm() with its next deadline. For the agent's thread only.
class DeadlineTimer {
 public:
  DeadlineTimer(EventLoop& loop, std::function<void()> on_timer)
      : loop_(loop), on_timer_(std::move(on_timer)) {}
  ~DeadlineTimer() {
    if (timer_) loop_.cancel(*timer_);
  }
  DeadlineTimer(const DeadlineTimer&) = delete;
  DeadlineTimer& operator=(const DeadlineTimer&) = delete;

  // Makes the timer call `on_timer` at `deadline` or earlier. Does not move an earlier timer: an early call
  // costs less than a move at each extended deadline. kNever neither sets nor cancels a timer.
  void arm(TimePoint deadline) {
    if (timer_ && timer_->first <= deadline) return;
    if (timer_) loop_.cancel(*std::exchange(timer_, std::nullopt));
    if (deadline == kNever) return;
    timer_ = loop_.at(deadline, [this] {
      timer_.reset();
      if (!survive_lack_of_memory(on_timer_)) arm(MonotonicClock::now() + EventLoop::kPauseWithoutMemory);
    });
  }

 private:
  EventLoop& loop_;
  const std::function<void()> on_timer_;
  std::optional<EventLoop::TimerId> timer_;
};

}  // namespace verbena::agent
