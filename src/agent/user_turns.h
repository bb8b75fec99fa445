// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <new>
#include <optional>
#include <utility>

#include <sys/types.h>

#include "base/log.h"
#include "base/processor_clock.h"
#include "base/time.h"

namespace verbena::agent {

// Calls `work`, which does one piece of the agent's work. Returns true if `work` returns. If it throws
// std::bad_alloc, logs a warning and returns false, so that the agent goes on with other work. The rest of
// the piece is then not done.
template <class Work>
bool survive_lack_of_memory(const Work& work) {
  try {
    work();
    return true;
  } catch (const std::bad_alloc&) {
  }
  try {
    log_warning("out of memory: a piece of work is left undone");
  } catch (const std::bad_alloc&) {  // no memory for the log either
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

// Finds users whose work takes long, and makes them pause: for a while their work is not done. Users can slow
// down the agent's short system calls. For example, sending a message wakes every watcher of the receiving
// socket within the agent's call. The receiver may have any number of watchers (epoll(7), fcntl(2) with
// F_SETOWN): with 150,000, one message takes 50 ms. Only the measured time of a call shows this. A pause is
// for the user, not for a session, because the user may end sessions and begin others.
//
// Each user has a budget of time. note() takes from the budget the time by which a piece of work or a message
// took longer than usual. The user pauses while the budget is overdrawn. Many short excesses count like a
// long one.
//
// Work may also take long because another thread had the processor. So after a user's first slow work, the
// caller measures the user's work by processor time. Reading that clock is a system call, so it is not read
// for other users.
//
// A third user may make all messages with descriptors long (MessageWitness). pardon() refills all budgets by
// the time that a witness of the kernel's delays has measured.
//
// Has no clock: the caller measures. For one thread.
class SlowUsers {
 public:
  // The budget refills by 1 ms in this many ms. So a user's slow work takes at most a hundredth of the time.
  // Once the budget is spent, the user pauses for this many times the work's excess time.
  static constexpr int kPause = 100;
  // Size of the budget. It is large enough for interrupts, which are not the user's fault: they count as the
  // work that they interrupt, and take 2 ms at a time.
  static constexpr Duration kBudget = std::chrono::milliseconds(10);

  // Returns whether the user's work must be measured by processor time: some of the user's work was slow
  // recently, by elapsed or by processor time.
  bool is_suspect(uid_t user, TimePoint now) { return find(user, now) != nullptr; }
  // Records that the user's work took `excess` longer than usual. Takes `excess` from the user's budget if it
  // is processor time (`by_processor`); else only makes the user suspect. Ignores root and the agent's own
  // user, which have no budget. Returns whether the user pauses now.
  bool note(uid_t user, Duration excess, bool by_processor, TimePoint now);
  // The kernel alone made messages take `excess` longer than usual: refills every user's budget by that time.
  // A user may have slowed the kernel down and the agent, too. That user's slow work then takes at most about
  // as large a share of the time as the kernel's delays.
  void pardon(Duration excess, TimePoint now);
  // Returns the end of the user's pause, or `now` if the user has none.
  TimePoint paused_until(uid_t user, TimePoint now);
  bool empty() const { return users_.empty(); }

 private:
  struct State {
    TimePoint suspect_until{};
    TimePoint full_at{};  // when the budget is full; by processor time
  };
  const State* find(uid_t user, TimePoint now);

  std::map<uid_t, State> users_;
};

// Divides the agent's time among users by deficit round robin. Users that had no work until now go first, as
// in FQ-CoDel (RFC 8290, 4.2). A user's share does not depend on its number of connections, nor on how long
// its requests take. A user with little work waits for at most one piece of another user's work, whatever the
// others have queued. If a user's pieces are slow, its other pieces wait for the end of a pause (SlowUsers).
//
// For the agent's thread.
class UserTurns {
 public:
  // A short piece of work. Returns whether more of it is left for the user's next turn.
  using Piece = std::function<bool()>;
  using Clock = std::function<TimePoint()>;

  // Time that a user's work may take per turn.
  static constexpr Duration kQuantum = std::chrono::microseconds(200);
  // A piece of work that takes longer than this is slow. The time beyond this limit is taken from the user's
  // budget (SlowUsers). Without a user's interference, the longest piece takes 2 ms.
  static constexpr Duration kSlow = std::chrono::milliseconds(10);
  // The same limit for sending or receiving one message. Usually that takes some microseconds.
  static constexpr Duration kSlowMessage = std::chrono::microseconds(50);

  // `processor` returns the processor time that this thread has used. `slow` replaces kSlow.
  explicit UserTurns(Clock clock = MonotonicClock::now, Clock processor = ProcessorClock::now,
                     Duration slow = kSlow)
      : clock_(std::move(clock)), processor_(std::move(processor)), slow_(slow) {}

  // Queues the piece after the user's earlier ones. If this throws std::bad_alloc, nothing has changed.
  void add(uid_t user, Piece piece);
  // Runs at least one piece, if there is any. Stops when no piece is left or the time `most` has passed.
  // Pieces may add other pieces.
  void run(Duration most);
  using Call = std::function<void()>;
  // Makes a short call for the user, in the user's turns or outside of them. Its time counts as the user's,
  // even if another user's piece makes the call. Its time beyond `slow` is taken from the user's budget
  // (SlowUsers). So a loop that makes many calls needs no limit of its own.
  void call_for(uid_t user, const Call& call, Duration slow) { call_for(user, call, slow, clock_()); }
  // Like call_for(), but returns false without making the call while the user pauses.
  bool try_for(uid_t user, const Call& call, Duration slow);
  // Like the method above, for a call that may take as long as a piece of work: `slow` is the constructor's.
  bool try_for(uid_t user, const Call& call) { return try_for(user, call, slow_); }
  // Makes a call that other users can make long. Used within a piece of work or within call_for(). The time
  // counts in the user's turn. But it is not taken from the user's budget (SlowUsers), because the user must
  // not pause for what others cause.
  void without_blame(const Call& call);
  // Ends pauses, or brings their ends forward, by SlowUsers::pardon().
  void pardon(Duration excess);
  // Has `task` called when a user begins to pause, with the end of the pause.
  void on_pause(std::function<void(TimePoint end)> task) { on_pause_ = std::move(task); }

  // Returns whether no piece can run now.
  bool empty() const { return pieces_ == 0; }
  // Returns the earliest end of a pause of a user with queued pieces, or kNever if there is none.
  TimePoint pause_end() const;
  bool is_paused(uid_t user) const { return paused_.contains(user); }
  // Returns whether work of the user was slow recently (SlowUsers).
  bool is_suspect(uid_t user) { return !slow_users_.empty() && slow_users_.is_suspect(user, clock_()); }
  bool has(uid_t user) const;

 private:
  struct User {
    std::list<Piece> pieces;
    Duration credit{};  // time left in this turn; a negative value reduces the next turns
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
  // Records the end of the user's work. Returns the time that is taken from the budget: all beyond `slow`.
  Duration end(uid_t user, const Begun& begun, TimePoint now, Duration slow);
  void call_for(uid_t user, const Call& call, Duration slow, TimePoint now);
  void take_credit(uid_t user, Duration time);
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
  const Duration slow_;
  SlowUsers slow_users_;
  std::map<uid_t, Paused> paused_;
  std::function<void(TimePoint)> on_pause_;  // may be empty
  std::optional<uid_t> running_;             // the user whose piece runs
  Duration elsewhere_{};                     // time that the running piece spent in calls for other users
  Duration blameless_{};  // time of the piece or call that runs, in without_blame() or noted already
  // Lists hold the turns' order, because moving an entry between lists takes no memory.
  std::map<uid_t, User> users_;  // users in `new_` or `old_`
  std::list<uid_t> new_;         // users that had no work until now
  std::list<uid_t> old_;         // users after their first turn
  size_t pieces_ = 0;            // without those of paused users
};

}  // namespace verbena::agent
