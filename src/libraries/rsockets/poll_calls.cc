// SPDX-License-Identifier: Apache-2.0
// rpoll(), rselect() and repoll_*(), for rsockets and plain descriptors mixed.
#include <cerrno>
#include <vector>

#include <rdma/rsocket.h>

#include "libraries/librdmacm/abi.h"
#include "libraries/rsockets/event_set.h"
#include "libraries/rsockets/poll_set.h"

namespace verbena::rsockets {
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

// Converts between the three sets of select(2) and a list for poll(2).
class SelectSets {
 public:
  SelectSets(fd_set* reading, fd_set* writing, fd_set* exceptions)
      : reading_(reading), writing_(writing), exceptions_(exceptions) {}

  std::vector<pollfd> wanted(int end) const {
    std::vector<pollfd> list;
    for (int fd = 0; fd < end; ++fd) {
      short events = 0;
      if (has(reading_, fd)) events |= POLLIN;
      if (has(writing_, fd)) events |= POLLOUT;
      if (has(exceptions_, fd)) events |= POLLPRI;
      if (events != 0) list.push_back({fd, events, 0});
    }
    return list;
  }

  // Fills the sets from the list, and returns the number of bits set.
  int answer(const std::vector<pollfd>& list) {
    for (fd_set* set : {reading_, writing_, exceptions_}) {
      if (set != nullptr) FD_ZERO(set);
    }
    int count = 0;
    for (const pollfd& one : list) {
      if ((one.events & POLLIN) != 0) count += set(reading_, one, POLLIN | POLLHUP | POLLERR);
      if ((one.events & POLLOUT) != 0) count += set(writing_, one, POLLOUT | POLLERR);
      if ((one.events & POLLPRI) != 0) count += set(exceptions_, one, POLLPRI | POLLHUP | POLLERR);
    }
    return count;
  }

 private:
  static bool has(const fd_set* set, int fd) { return set != nullptr && FD_ISSET(fd, set); }
  static int set(fd_set* to, const pollfd& one, int bits) {
    if ((one.revents & bits) == 0) return 0;
    FD_SET(one.fd, to);
    return 1;
  }

  fd_set* reading_;
  fd_set* writing_;
  fd_set* exceptions_;
};

Result<int> select(int end, SelectSets sets, TimePoint deadline) {
  if (end < 0) return fail(EINVAL);
  std::vector<pollfd> list = sets.wanted(std::min(end, FD_SETSIZE));
  const auto count = PollSet(list).wait(deadline);
  if (!count) return count;
  for (const pollfd& one : list) {
    if ((one.revents & POLLNVAL) != 0) return fail(EBADF);
  }
  return sets.answer(list);
}

}  // namespace
}  // namespace verbena::rsockets

using namespace verbena;

VERBENA_ABI int rpoll(pollfd* fds, nfds_t count, int timeout) {
  int ready = -1;
  rdmacm::answer([&] {
    const auto waited = rsockets::PollSet({fds, count}).wait(rsockets::deadline_in(timeout));
    if (!waited) return waited.error().code;
    ready = *waited;
    return 0;
  });
  return ready;
}

VERBENA_ABI int rselect(int end, fd_set* reading, fd_set* writing, fd_set* exceptions, timeval* timeout) {
  int ready = -1;
  rdmacm::answer([&] {
    TimePoint deadline = kNever;
    if (timeout != nullptr) {
      if (timeout->tv_sec < 0 || timeout->tv_usec < 0) return EINVAL;
      deadline = rsockets::deadline_in(*timeout);
    }
    const auto waited = rsockets::select(end, {reading, writing, exceptions}, deadline);
    if (!waited) return waited.error().code;
    ready = *waited;
    return 0;
  });
  return ready;
}

// Functions of newer versions of librdmacm, which Debian's headers lack.
extern "C" {
int repoll_create(int size);
int repoll_ctl(int set, int operation, int fd, epoll_event* event);
int repoll_wait(int set, epoll_event* events, int capacity, int timeout);
}

VERBENA_ABI int repoll_create(int) {
  int number = -1;
  rdmacm::answer([&] {
    const auto set = rsockets::EventSet::create();
    if (!set) return set.error().code;
    number = (*set)->number();
    return 0;
  });
  return number;
}

VERBENA_ABI int repoll_ctl(int number, int operation, int fd, epoll_event* event) {
  return rdmacm::answer([&] {
    const auto set = rsockets::EventSet::find(number);
    return set ? rdmacm::error_of(set->control(operation, fd, event)) : EBADF;
  });
}

VERBENA_ABI int repoll_wait(int number, epoll_event* events, int capacity, int timeout) {
  int ready = -1;
  rdmacm::answer([&] {
    const auto set = rsockets::EventSet::find(number);
    if (!set) return EBADF;
    if (capacity <= 0) return EINVAL;
    const auto waited = set->wait({events, static_cast<size_t>(capacity)}, rsockets::deadline_in(timeout));
    if (!waited) return waited.error().code;
    ready = *waited;
    return 0;
  });
  return ready;
}
