// SPDX-License-Identifier: Apache-2.0
#include "agent/event_loop.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <system_error>

#include <sys/eventfd.h>

namespace verbena::agent {

namespace {

// A piece for which there is not enough memory is left as it is.
bool run_for(uid_t user, const UserTurns::Piece& piece) {
  const ActingFor acting(user);
  bool has_more = false;
  survive_lack_of_memory([&] { has_more = piece(); });
  return has_more;
}

// Maximum number of events per round. Queueing an event for its user's turn is cheap. With a small limit, a
// user with thousands of busy descriptors would hide the events of other users.
constexpr size_t kEventsAtOnce = 512;

// Returns the epoll key of a watch. A descriptor's number may be closed and reused within one round of
// events, so the key includes the watch's generation.
uint64_t key_of(int fd, uint32_t generation) {
  return static_cast<uint64_t>(generation) << 32 | static_cast<uint32_t>(fd);
}

}  // namespace

void UserTurns::add(uid_t user, Piece piece) {
  std::list<Piece> added;
  added.push_back(std::move(piece));
  std::list<uid_t> name;
  if (!users_.contains(user)) name.push_back(user);
  User& its = users_[user];
  // From here on nothing takes memory.
  its.pieces.splice(its.pieces.end(), added);
  ++pieces_;
  if (name.empty()) return;
  its.credit = kQuantum;
  new_.splice(new_.end(), name);
}

bool UserTurns::has(uid_t user) const {
  const auto found = users_.find(user);
  return found != users_.end() && !found->second.pieces.empty();
}

void UserTurns::move_to_end_of_old(std::list<uid_t>& from) {
  old_.splice(old_.end(), from, from.begin());
}

// Returns the user whose turn it is. A user without work stays in the list until its debt is paid. So sending
// one expensive request at a time gives no advantage.
uid_t UserTurns::choose() {
  for (;;) {
    std::list<uid_t>& list = new_.empty() ? old_ : new_;
    const uid_t user = list.front();
    User& its = users_.at(user);
    if (its.credit <= Duration::zero()) {
      its.credit += kQuantum;
      move_to_end_of_old(list);
    } else if (!its.pieces.empty()) {
      return user;
    } else if (&list == &new_) {
      move_to_end_of_old(list);
    } else {
      users_.erase(user);
      list.pop_front();
    }
  }
}

void UserTurns::run(Duration most, const Clock& clock) {
  TimePoint now = clock();
  const TimePoint end = now + most;
  while (pieces_ > 0) {
    const uid_t chosen = choose();
    User& user = users_.at(chosen);
    std::list<Piece> piece;
    piece.splice(piece.end(), user.pieces, user.pieces.begin());
    --pieces_;
    const bool has_more = run_for(chosen, piece.front());
    const TimePoint begun = std::exchange(now, clock());
    user.credit -= now - begun;
    if (has_more) {
      user.pieces.splice(user.pieces.end(), piece);
      ++pieces_;
    }
    if (now >= end) break;
  }
  if (pieces_ > 0) return;
  // No user waits, so debts are dropped.
  users_.clear();
  new_.clear();
  old_.clear();
}

EventLoop::EventLoop(Duration per_round, UserTurns::Clock clock)
    : per_round_(per_round),
      clock_(std::move(clock)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!epoll_ || !stop_) throw std::system_error(errno, std::generic_category(), "event loop");
  watch(stop_.get(), EPOLLIN, [this](uint32_t) { stopped_ = true; });
}

void EventLoop::add_watch(int fd, uint32_t events, uint32_t flags, Handler handler) {
  const uint32_t generation = ++next_generation_;
  watches_[fd] = {generation, flags, std::make_shared<Handler>(std::move(handler))};
  epoll_event event{events | flags, {.u64 = key_of(fd, generation)}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return;
  const int error = errno;
  watches_.erase(fd);
  // The kernel has no memory for it, or the user has all that it may have (fs.epoll.max_user_watches).
  if (error == ENOMEM || error == ENOSPC) throw std::bad_alloc();
  throw std::system_error(error, std::generic_category(), "epoll");
}

void EventLoop::watch(int fd, uint32_t events, Handler handler) {
  add_watch(fd, events, 0, std::move(handler));
}

// Edge-triggered: a descriptor that waits for its user's turn is not reported again in each round.
void EventLoop::watch_for(uid_t user, int fd, uint32_t events, PieceHandler handler) {
  auto pending = std::make_shared<Pending>();
  pending->handler = std::move(handler);
  const uint32_t generation = next_generation_ + 1;
  const auto piece = [this, fd, generation, pending] {
    pending->is_queued = false;
    if (!is_watched(fd, generation)) return false;
    const uint32_t news = std::exchange(pending->events, 0);
    bool has_more = false;
    if (!survive_lack_of_memory([&] { has_more = pending->handler(news); })) {
      pending->events |= news;
      pending->is_undone = true;
      try_again_later();
    }
    pending->is_queued = has_more && is_watched(fd, generation);
    return pending->is_queued;
  };
  add_watch(fd, events, EPOLLET, [this, user, pending, piece](uint32_t news) {
    pending->events |= news;
    if (pending->is_queued || (news == 0 && !pending->is_undone)) return;
    pending->is_undone = true;  // until add() has not failed
    turns_.add(user, piece);
    pending->is_queued = true;
    pending->is_undone = false;
  });
}

bool EventLoop::is_watched(int fd, uint32_t generation) const {
  const auto found = watches_.find(fd);
  return found != watches_.end() && found->second.generation == generation;
}

void EventLoop::set_events(int fd, uint32_t events) {
  const auto found = watches_.find(fd);
  if (found == watches_.end()) return;
  epoll_event event{events | found->second.flags, {.u64 = key_of(fd, found->second.generation)}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void EventLoop::forget(int fd) {
  if (watches_.erase(fd) != 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

EventLoop::TimerId EventLoop::at(TimePoint when, Task task) {
  const TimerId id{when, ++next_timer_};
  timers_.emplace(id, std::move(task));
  return id;
}

void EventLoop::dispatch(const epoll_event& event) {
  const int fd = static_cast<int>(event.data.u64 & UINT32_MAX);
  if (!is_watched(fd, static_cast<uint32_t>(event.data.u64 >> 32))) return;
  const std::shared_ptr<Handler> handler = watches_.at(fd).handler;  // the handler may call forget(fd)
  if (!survive_lack_of_memory([&] { (*handler)(event.events); })) try_again_later();
}

// Queues the work of watch_for() that was left undone for lack of memory: edge-triggered epoll does not
// report its events again.
void EventLoop::queue_again() {
  try_again_ = kNever;
  for (const auto& entry : watches_) {
    const Watch& watch = entry.second;
    if (watch.flags == 0) continue;
    if (!survive_lack_of_memory([&] { (*watch.handler)(0); })) try_again_later();
  }
}

// A timer that a task sets for a time already past waits for the next round. Otherwise a task that runs
// longer than its interval would block all others. Timers beyond a round's time limit also wait: a program
// may have set 131,072 for one moment.
void EventLoop::run_timers() {
  const TimePoint now = MonotonicClock::now();
  while (!timers_.empty() && timers_.begin()->first.first <= now) {
    const auto node = timers_.extract(timers_.begin());
    survive_lack_of_memory(node.mapped());
    if (MonotonicClock::now() - now >= per_round_) return;
  }
}

void EventLoop::run_later() {
  IntrusiveList<QueuedTask, &QueuedTask::hook_> undone;
  while (!later_.empty() || !queued_.empty()) {
    const std::vector<Task> tasks = std::exchange(later_, {});
    for (const Task& task : tasks) survive_lack_of_memory(task);
    if (queued_.empty()) continue;
    QueuedTask& next = queued_.pop_front();
    if (survive_lack_of_memory(next.task_)) continue;
    next.hook_.unlink();
    undone.push_back(next);
  }
  while (!undone.empty()) {
    queued_.push_back(undone.pop_front());
    try_again_later();
  }
}

int EventLoop::timeout_ms() const {
  const TimePoint next = timers_.empty() ? try_again_ : std::min(try_again_, timers_.begin()->first.first);
  if (next == kNever) return -1;
  const Duration left = next - MonotonicClock::now();
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::clamp<int64_t>(ms, 0, INT_MAX));
}

void EventLoop::run() {
  while (!stopped_) run_round();
}

void EventLoop::run_round() {
  epoll_event events[kEventsAtOnce];
  const std::vector<Task> of_this_round = std::exchange(next_round_, {});
  const int timeout = of_this_round.empty() && turns_.empty() ? timeout_ms() : 0;
  const int count = ::epoll_wait(epoll_.get(), events, std::size(events), timeout);
  if (count < 0 && errno != EINTR) throw std::system_error(errno, std::generic_category(), "epoll_wait");
  for (int i = 0; i < count; ++i) dispatch(events[i]);
  if (try_again_ != kNever && try_again_ <= MonotonicClock::now()) queue_again();
  survive_lack_of_memory([this] { turns_.run(per_round_, clock_); });
  for (const Task& task : of_this_round) survive_lack_of_memory(task);
  run_timers();
  run_later();
}

void EventLoop::stop() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof one);
}

}  // namespace verbena::agent
