// SPDX-License-Identifier: Apache-2.0
#include "libraries/rsockets/waiting.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include <poll.h>
#include <sys/eventfd.h>

#include "base/cancellation_off.h"
#include "base/plain_calls.h"
#include "libraries/rsockets/configuration.h"
#include "libraries/rsockets/socket.h"
#include "libraries/rsockets/socket_table.h"

namespace verbena::rsockets {
namespace {

// Signals that a thread's own instructions raise. Their handlers do not end a wait: crash reporters and
// sanitizers install handlers for faults without expecting EINTR from calls.
constexpr int kOfOwnInstructions[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};

// Whether the kernel would restart the interrupted call if it were read(2); the wait uses poll(2), which is
// never restarted. The handler that ran is unknown, so all installed handlers must have SA_RESTART: a program
// that relies on EINTR gets it.
bool handlers_restart_calls() {
  bool any = false;
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action;
    if (std::ranges::find(kOfOwnInstructions, number) != std::end(kOfOwnInstructions)) continue;
    if (::sigaction(number, nullptr, &action) != 0) continue;
    if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) continue;
    if ((action.sa_flags & SA_RESTART) == 0) return false;
    any = true;
  }
  return any;
}

Result<Interest> sleep_for(Socket& socket, Interest interest, TimePoint deadline) {
  Waker* waker = Waker::of_this_thread();
  if (waker == nullptr) return fail(ENOMEM);
  const Waiter waiter(socket.waiters(), *waker, interest);
  for (;;) {
    if (const Interest ready = socket.arm(interest)) return ready;
    if (MonotonicClock::now() >= deadline) return fail(ETIMEDOUT);
    pollfd fds[] = {{waker->fd(), POLLIN, 0}, {socket.event_descriptor(), POLLIN, 0}};
    {
      const CancellationAllowed asleep;
      if (plain_poll(fds, 2, sleep_time(deadline)) < 0) {
        const int error = errno;
        if (error != EINTR || !handlers_restart_calls()) return fail(error);
        continue;
      }
    }
    if (fds[0].revents != 0) waker->reset();
    if (fds[1].revents != 0) socket.take_event();
  }
}

}  // namespace

Waker* Waker::of_this_thread() {
  thread_local Waker waker;
  // After fork(), parent and child share the descriptor and would consume each other's wake-ups.
  if (std::exchange(waker.process_, current_process()) != current_process()) waker.fd_.reset();
  if (!waker.fd_.settle()) waker.fd_ = UniqueFd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  return waker.fd_ ? &waker : nullptr;
}

void Waker::wake() {
  if (fd_.is_ours()) ::eventfd_write(fd_.get(), 1);
}

void Waker::reset() {
  eventfd_t count;
  if (fd_.is_ours()) ::eventfd_read(fd_.get(), &count);
}

Waiter::Waiter(WaitList& list, Waker& waker, Interest interest)
    : list_(list), waker_(&waker), interest_(interest) {
  const std::lock_guard lock(list_.lock_);
  list_.waiters_.push_back(*this);
  list_.count_.fetch_add(1, std::memory_order_acq_rel);
}

Waiter::~Waiter() {
  const std::lock_guard lock(list_.lock_);
  hook_.unlink();
  list_.count_.fetch_sub(1, std::memory_order_relaxed);
}

void WaitList::wake(Interest ready) {
  // A read-modify-write orders this call with Waiter(): either it sees the new waiter, or the waiter sees the
  // change that `ready` describes.
  if (count_.fetch_add(0, std::memory_order_acq_rel) == 0) return;
  const Waker* own = Waker::of_this_thread();
  const std::lock_guard lock(lock_);
  for (Waiter& waiter : waiters_) {
    if ((waiter.interest_ & ready) != 0 && waiter.waker_ != own) waiter.waker_->wake();
  }
}

bool WaitList::is_shared() {
  return count_.load(std::memory_order_relaxed) > 1;
}

Result<Interest> wait_for(Socket& socket, Interest interest, TimePoint deadline) {
  interest |= POLLERR | POLLHUP;
  const TimePoint end = MonotonicClock::now() + configuration().polling_time;
  do {
    if (const Interest ready = socket.ready(interest)) return ready;
  } while (MonotonicClock::now() < end);
  return sleep_for(socket, interest, deadline);
}

Result<void> await(Socket& socket, Interest interest, bool may_block) {
  if (!may_block) {
    if (socket.ready(interest) == 0) return fail(EAGAIN);
    return {};
  }
  const auto waited = wait_for(socket, interest);
  if (!waited) return fail(waited.error().code);
  return {};
}

Result<void> await_room(int fd) {
  pollfd one{fd, POLLOUT, 0};
  const CancellationAllowed asleep;
  if (plain_poll(&one, 1, sleep_time(kNever)) >= 0) return {};
  const int error = errno;
  if (error != EINTR || !handlers_restart_calls()) return fail(error);
  return {};
}

int sleep_time(TimePoint deadline) {
  using std::chrono::milliseconds;
  const auto longest = std::chrono::duration_cast<milliseconds>(configuration().wake_up_interval);
  if (deadline == kNever) return static_cast<int>(longest.count());
  const auto left = std::chrono::ceil<milliseconds>(deadline - MonotonicClock::now());
  return static_cast<int>(std::clamp(left, milliseconds(0), longest).count());
}

}  // namespace verbena::rsockets
