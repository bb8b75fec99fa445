// SPDX-License-Identifier: Apache-2.0
// rpoll(), rselect() and repoll_*(), for rsockets and plain descriptors mixed.
#include "libraries/rsockets/event_set.h"

#include <rdma/rsocket.h>

#include "base/cancellation_off.h"
#include "base/mutex_at_fork.h"
#include "base/plain_calls.h"
#include "libraries/librdmacm/calls.h"

namespace verbena::rsockets {
namespace {

constexpr short kReading = POLLIN | POLLRDNORM;
constexpr short kWriting = POLLOUT | POLLWRNORM;

Interest interest_in(short events) {
  return ((events & kReading) != 0 ? POLLIN : 0) | ((events & kWriting) != 0 ? POLLOUT : 0);
}

// Converts ready conditions to the event bits that the program asked for.
short answer_to(short events, Interest ready) {
  auto answer = static_cast<short>(ready & (POLLERR | POLLHUP | POLLNVAL));
  if ((ready & POLLIN) != 0) answer |= static_cast<short>(events & kReading);
  if ((ready & POLLOUT) != 0) answer |= static_cast<short>(events & kWriting);
  return answer;
}

}  // namespace

PollSet::PollSet(std::span<pollfd> wanted) : wanted_(wanted) {
  sockets_.reserve(wanted.size());
  for (const pollfd& one : wanted) {
    sockets_.push_back(SocketTable::instance().find(one.fd));
    if (!sockets_.back()) plain_.push_back(one);
  }
}

Result<int> PollSet::wait(TimePoint deadline) {
  const TimePoint until = std::min(deadline, MonotonicClock::now() + configuration().polling_time);
  for (;;) {
    if (const int count = check(); count != 0) return count;
    const TimePoint now = MonotonicClock::now();
    if (now >= deadline) return 0;
    if (now >= until) return sleep(deadline);
  }
}

int PollSet::check() {
  int count = plain_.empty() ? 0 : std::max(plain_poll(plain_.data(), plain_.size(), 0), 0);
  auto plain = plain_.begin();
  for (size_t i = 0; i < wanted_.size(); ++i) {
    pollfd& one = wanted_[i];
    if (!sockets_[i]) {
      one.revents = (plain++)->revents;
      continue;
    }
    one.revents = answer_to(one.events, sockets_[i]->ready(interest_in(one.events)));
    count += one.revents != 0;
  }
  return count;
}

Result<int> PollSet::sleep(TimePoint deadline) {
  Waker* waker = Waker::of_this_thread();
  if (waker == nullptr) return fail(ENOMEM);
  std::deque<Waiter> waiters;
  for (size_t i = 0; i < wanted_.size(); ++i) {
    if (!sockets_[i]) continue;
    waiters.emplace_back(sockets_[i]->waiters(), *waker, interest_in(wanted_[i].events) | POLLERR | POLLHUP);
  }
  for (;;) {
    if (!arm(waker->fd())) {
      {
        const CancellationAllowed asleep;
        if (plain_poll(asleep_.data(), asleep_.size(), sleep_time(deadline)) < 0) return fail(errno);
      }
      if (asleep_[0].revents != 0) waker->reset();
      for (size_t i = 0; i < wanted_.size(); ++i) {
        if (sockets_[i] && asleep_[i + 1].revents != 0) sockets_[i]->take_event();
      }
    }
    if (const int count = check(); count != 0) return count;
    if (MonotonicClock::now() >= deadline) return 0;
  }
}

// Arms notifications, and lists the descriptors to poll. Returns true if something is ready already.
bool PollSet::arm(int waker) {
  asleep_.assign(1, {waker, POLLIN, 0});
  for (size_t i = 0; i < wanted_.size(); ++i) {
    const pollfd& one = wanted_[i];
    if (!sockets_[i]) {
      asleep_.push_back({one.fd, one.events, 0});
      continue;
    }
    if (answer_to(one.events, sockets_[i]->arm(interest_in(one.events))) != 0) return true;
    asleep_.push_back({sockets_[i]->event_descriptor(), POLLIN, 0});
  }
  return false;
}

namespace {

struct Sets {
  std::mutex mutex;
  std::map<int, std::shared_ptr<EventSet>> by_number;
};

Sets& sets() {
  static auto* all = new Sets;  // never destroyed: threads may wait while the process exits
  return *all;
}

[[maybe_unused]] const int sets_watched = lock_at_fork<[]() -> std::mutex& { return sets().mutex; }>();

// epoll(7) defines these bits to be equal to those of poll(2).
static_assert(EPOLLIN == POLLIN && EPOLLOUT == POLLOUT && EPOLLPRI == POLLPRI && EPOLLERR == POLLERR &&
              EPOLLHUP == POLLHUP && EPOLLRDHUP == POLLRDHUP);
constexpr uint32_t kPolled = EPOLLIN | EPOLLOUT | EPOLLPRI | EPOLLRDHUP | EPOLLRDNORM | EPOLLWRNORM;

}  // namespace

Result<std::shared_ptr<EventSet>> EventSet::create() {
  std::shared_ptr<EventSet> set(new EventSet);
  set->number_ = OwnFd::with_known_number(UniqueFd(::eventfd(0, EFD_CLOEXEC)));
  if (!set->number_) return fail(errno);
  const std::lock_guard lock(sets().mutex);
  sets().by_number[set->number()] = set;
  return set;
}

std::shared_ptr<EventSet> EventSet::find(int number) {
  const std::lock_guard lock(sets().mutex);
  const auto found = sets().by_number.find(number);
  return found != sets().by_number.end() ? found->second : nullptr;
}

bool EventSet::close(int number) {
  std::shared_ptr<EventSet> closed;  // destroyed after the lock is released
  const std::lock_guard lock(sets().mutex);
  const auto found = sets().by_number.find(number);
  if (found == sets().by_number.end()) return false;
  closed = std::move(found->second);
  sets().by_number.erase(found);
  return true;
}

Result<void> EventSet::control(int operation, int fd, const epoll_event* event) {
  if (operation != EPOLL_CTL_ADD && operation != EPOLL_CTL_MOD && operation != EPOLL_CTL_DEL)
    return fail(EINVAL);
  if (fd == number()) return fail(EINVAL);
  const std::lock_guard lock(mutex_);
  const auto found = interests_.find(fd);
  if (operation == EPOLL_CTL_DEL) {
    if (found == interests_.end()) return fail(ENOENT);
    interests_.erase(found);
    return {};
  }
  if (event == nullptr) return fail(EFAULT);
  if ((event->events & EPOLLET) != 0) return fail(EOPNOTSUPP);
  if (operation == EPOLL_CTL_MOD) {
    if (found == interests_.end()) return fail(ENOENT);
    found->second = *event;
    return {};
  }
  if (found != interests_.end()) return fail(EEXIST);
  if (!SocketTable::instance().find(fd) && ::fcntl(fd, F_GETFD) < 0) return fail(EBADF);
  interests_.emplace(fd, *event);
  return {};
}

Result<int> EventSet::wait(std::span<epoll_event> events, TimePoint deadline) {
  if (events.empty()) return fail(EINVAL);
  std::vector<pollfd> list;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [fd, event] : interests_) {
      if (event.events != 0) list.push_back({fd, static_cast<short>(event.events & kPolled), 0});
    }
  }
  const auto count = PollSet(list).wait(deadline);
  if (!count) return count;
  size_t used = 0;
  const std::lock_guard lock(mutex_);
  for (const pollfd& one : list) {
    if (one.revents == 0 || used == events.size()) continue;
    const auto found = interests_.find(one.fd);
    if (found == interests_.end()) continue;
    if ((one.revents & POLLNVAL) != 0) {
      interests_.erase(found);  // closed: epoll(7) drops it, too
      continue;
    }
    events[used] = found->second;
    events[used++].events = static_cast<uint16_t>(one.revents);
    if ((found->second.events & EPOLLONESHOT) != 0) found->second.events = 0;
  }
  return static_cast<int>(used);
}

namespace {

TimePoint deadline_in(int milliseconds) {
  return milliseconds < 0 ? kNever : MonotonicClock::now() + std::chrono::milliseconds(milliseconds);
}

// Returns kNever for times too far away to be represented.
TimePoint deadline_in(const timeval& time) {
  constexpr int64_t kMaxSeconds = int64_t{100} * 365 * 86400;
  if (time.tv_sec > kMaxSeconds || time.tv_usec / 1000000 > kMaxSeconds) return kNever;
  return MonotonicClock::now() + std::chrono::seconds(time.tv_sec) + std::chrono::microseconds(time.tv_usec);
}

// One of the three sets of select(2): the events of poll(2) that it asks for, and those that it reports.
struct SelectSet {
  fd_set* set;  // may be null
  short asked;
  short reported;
};

// Waits as select(2) does, and returns the number of bits set.
Result<int> select(int end, std::span<const SelectSet> sets, TimePoint deadline) {
  if (end < 0) return fail(EINVAL);
  std::vector<pollfd> list;
  for (int fd = 0; fd < std::min(end, FD_SETSIZE); ++fd) {
    short events = 0;
    for (const SelectSet& each : sets) {
      if (each.set != nullptr && FD_ISSET(fd, each.set)) events |= each.asked;
    }
    if (events != 0) list.push_back({fd, events, 0});
  }
  const auto ready = PollSet(list).wait(deadline);
  if (!ready) return ready;
  if (std::ranges::any_of(list, [](const pollfd& one) { return (one.revents & POLLNVAL) != 0; }))
    return fail(EBADF);
  int count = 0;
  for (const SelectSet& each : sets) {
    if (each.set == nullptr) continue;
    FD_ZERO(each.set);
    for (const pollfd& one : list) {
      if ((one.events & each.asked) == 0 || (one.revents & each.reported) == 0) continue;
      FD_SET(one.fd, each.set);
      ++count;
    }
  }
  return count;
}

}  // namespace
}  // namespace verbena::rsockets

using namespace verbena;

VERBENA_ABI int rpoll(pollfd* fds, nfds_t count, int timeout) {
  return rdmacm::answer_number([&] {
    return rsockets::PollSet({fds, count}).wait(rsockets::deadline_in(timeout));
  });
}

VERBENA_ABI int rselect(int end, fd_set* reading, fd_set* writing, fd_set* exceptions, timeval* timeout) {
  return rdmacm::answer_number([&]() -> Result<int> {
    TimePoint deadline = kNever;
    if (timeout != nullptr) {
      if (timeout->tv_sec < 0 || timeout->tv_usec < 0) return fail(EINVAL);
      deadline = rsockets::deadline_in(*timeout);
    }
    const rsockets::SelectSet sets[] = {{reading, POLLIN, POLLIN | POLLHUP | POLLERR},
                                        {writing, POLLOUT, POLLOUT | POLLERR},
                                        {exceptions, POLLPRI, POLLPRI | POLLHUP | POLLERR}};
    return rsockets::select(end, sets, deadline);
  });
}

// Functions of newer versions of librdmacm, which Debian's headers lack.
extern "C" {
int repoll_create(int size);
int repoll_ctl(int set, int operation, int fd, epoll_event* event);
int repoll_wait(int set, epoll_event* events, int capacity, int timeout);
}

VERBENA_ABI int repoll_create(int) {
  return rdmacm::answer_number([]() -> Result<int> {
    const auto set = rsockets::EventSet::create();
    if (!set) return fail(set.error().code);
    return (*set)->number();
  });
}

VERBENA_ABI int repoll_ctl(int number, int operation, int fd, epoll_event* event) {
  return rdmacm::answer([&] {
    const auto set = rsockets::EventSet::find(number);
    return set ? rdmacm::error_of(set->control(operation, fd, event)) : EBADF;
  });
}

VERBENA_ABI int repoll_wait(int number, epoll_event* events, int capacity, int timeout) {
  return rdmacm::answer_number([&]() -> Result<int> {
    const auto set = rsockets::EventSet::find(number);
    if (!set) return fail(EBADF);
    if (capacity <= 0) return fail(EINVAL);
    return set->wait({events, static_cast<size_t>(capacity)}, rsockets::deadline_in(timeout));
  });
}
