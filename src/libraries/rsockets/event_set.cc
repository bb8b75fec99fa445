// SPDX-License-Identifier: Apache-2.0
#include "libraries/rsockets/event_set.h"

#include <cerrno>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>

#include "base/mutex_at_fork.h"
#include "libraries/rsockets/poll_set.h"
#include "libraries/rsockets/socket_table.h"

namespace verbena::rsockets {
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

}  // namespace verbena::rsockets
