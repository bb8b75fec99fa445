// SPDX-License-Identifier: Apache-2.0
#include "libraries/rsockets/poll_set.h"

#include <algorithm>
#include <cerrno>
#include <deque>

#include "base/cancellation_off.h"
#include "base/plain_calls.h"
#include "libraries/rsockets/configuration.h"
#include "libraries/rsockets/socket_table.h"

namespace verbena::rsockets {
namespace {

constexpr short kReading = POLLIN | POLLRDNORM;
constexpr short kWriting = POLLOUT | POLLWRNORM;

Interest interest_in(short events) {
  Interest interest = 0;
  if ((events & kReading) != 0) interest |= POLLIN;
  if ((events & kWriting) != 0) interest |= POLLOUT;
  return interest;
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
  int count = check_plain();
  for (size_t i = 0; i < wanted_.size(); ++i) {
    if (!sockets_[i]) continue;
    pollfd& one = wanted_[i];
    one.revents = answer_to(one.events, sockets_[i]->ready(interest_in(one.events)));
    count += one.revents != 0;
  }
  return count;
}

int PollSet::check_plain() {
  if (plain_.empty()) return 0;
  const int count = plain_poll(plain_.data(), plain_.size(), 0);
  auto from = plain_.begin();
  for (size_t i = 0; i < wanted_.size(); ++i) {
    if (!sockets_[i]) wanted_[i].revents = (from++)->revents;
  }
  return std::max(count, 0);
}

Result<int> PollSet::sleep(TimePoint deadline) {
  Waker* waker = Waker::of_this_thread();
  if (waker == nullptr) return fail(ENOMEM);
  std::deque<Standing> standings;
  for (size_t i = 0; i < wanted_.size(); ++i) {
    if (!sockets_[i]) continue;
    standings.emplace_back(sockets_[i]->waiters(), *waker,
                           interest_in(wanted_[i].events) | POLLERR | POLLHUP);
  }
  for (;;) {
    if (!arm()) {
      prepare(waker->fd());
      {
        const CancellationAllowed asleep;
        if (plain_poll(asleep_.data(), asleep_.size(), sleep_time(deadline)) < 0) return fail(errno);
      }
      if (asleep_[0].revents != 0) waker->reset();
      take_events();
    }
    if (const int count = check(); count != 0) return count;
    if (MonotonicClock::now() >= deadline) return 0;
  }
}

// Arms notifications. True if something is ready already.
bool PollSet::arm() {
  for (size_t i = 0; i < wanted_.size(); ++i) {
    if (!sockets_[i]) continue;
    const short events = wanted_[i].events;
    if (answer_to(events, sockets_[i]->arm(interest_in(events))) != 0) return true;
  }
  return false;
}

void PollSet::prepare(int waker) {
  asleep_.assign(1, {waker, POLLIN, 0});
  for (size_t i = 0; i < wanted_.size(); ++i) {
    const auto& socket = sockets_[i];
    asleep_.push_back({socket ? socket->event_descriptor() : wanted_[i].fd,
                       socket ? static_cast<short>(POLLIN) : wanted_[i].events, 0});
  }
}

void PollSet::take_events() {
  for (size_t i = 0; i < wanted_.size(); ++i) {
    if (sockets_[i] && asleep_[i + 1].revents != 0) sockets_[i]->take_event();
  }
}

}  // namespace verbena::rsockets
