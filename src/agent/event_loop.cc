// SPDX-License-Identifier: Apache-2.0
#include "agent/event_loop.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <system_error>

#include <sys/eventfd.h>
#include <unistd.h>

namespace verbena::agent {

namespace {

// Maximum number of events per round. Queueing an event for its user's turn is cheap. With a small limit, a
// user with thousands of busy descriptors would hide the events of other users.
constexpr size_t kEventsAtOnce = 512;

// Returns the epoll key of a watch. A descriptor's number may be closed and reused within one round of
// events, so the key includes the watch's generation.
uint64_t key_of(int fd, uint32_t generation) {
  return static_cast<uint64_t>(generation) << 32 | static_cast<uint32_t>(fd);
}

}  // namespace

EventLoop::EventLoop(Duration per_round, UserTurns::Clock clock, UserTurns::Clock processor)
    : per_round_(per_round),
      clock_(std::move(clock)),
      turns_(clock_, std::move(processor)),
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
  const TimerId id{std::max(when, earliest_), ++next_timer_};
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

// A timer that a task sets for a time already past waits for the next round, and goes behind those that are
// due now. Otherwise a task that runs longer than its interval would block all others. Timers beyond a
// round's time limit also wait.
void EventLoop::run_timers() {
  const TimePoint now = MonotonicClock::now();
  earliest_ = now + Duration(1);
  user_timers_.queue_due(now);
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
  TimePoint next = std::min(try_again_, user_timers_.next());
  if (!timers_.empty()) next = std::min(next, timers_.begin()->first.first);
  Duration left = Duration::max();
  if (next != kNever) left = next - MonotonicClock::now();
  if (const TimePoint end = turns_.pause_end(); end != kNever) left = std::min(left, end - clock_());
  if (left == Duration::max()) return -1;
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
  survive_lack_of_memory([this] { turns_.run(per_round_); });
  for (const Task& task : of_this_round) survive_lack_of_memory(task);
  run_timers();
  run_later();
}

void EventLoop::stop() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof one);
}

}  // namespace verbena::agent
