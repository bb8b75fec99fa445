// SPDX-License-Identifier: Apache-2.0
#include "libraries/rsockets/socket.h"

#include <csignal>

#include <poll.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <unistd.h>

#include "base/cancellation_off.h"
#include "base/only_one.h"
#include "base/plain_calls.h"

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
  return wait_for(socket, interest).map([](Interest) {});
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

Result<void> OptionValue::set(const void* from, size_t bytes) {
  if (to_ == nullptr) return fail(EFAULT);
  if (*length_ < bytes) return fail(EINVAL);
  if (bytes > 0) std::memcpy(to_, from, bytes);
  *length_ = static_cast<socklen_t>(bytes);
  return {};
}

Result<int> int_option(const void* value, socklen_t length) {
  if (value == nullptr) return fail(EFAULT);
  if (length < sizeof(int)) return fail(EINVAL);
  int number;
  std::memcpy(&number, value, sizeof number);
  return number;
}

uint32_t Sizes::*size_option(int name) {
  switch (name) {
    case RDMA_SQSIZE:
      return &Sizes::send_queue;
    case RDMA_RQSIZE:
      return &Sizes::receive_queue;
    case RDMA_INLINE:
      return &Sizes::inline_bytes;
    default:
      return nullptr;
  }
}

namespace {

std::atomic<pid_t> process{0};

void note_process() {
  process.store(::getpid(), std::memory_order_relaxed);
}

void note_process_in_child() {
  note_process();
  SocketTable::instance().free_in_child();
}

// Registered when the library is loaded: later another thread could already be forking.
const bool is_watched = [] {
  note_process();
  return ::pthread_atfork(nullptr, nullptr, note_process_in_child) == 0;
}();

}  // namespace

pid_t current_process() {
  return is_watched ? process.load(std::memory_order_relaxed) : ::getpid();
}

SocketTable& SocketTable::instance() {
  static constinit OnlyOne<SocketTable> table;
  return table.get([] { return new SocketTable; });
}

void SocketTable::free_in_child() {
  for (const std::atomic<Page*>& page : pages_) {
    Page* const entries = page.load(std::memory_order_acquire);
    if (entries == nullptr) continue;
    for (Entry& each : *entries) each.lock.unlock();
  }
}

SocketTable::Entry* SocketTable::entry(int number) {
  const auto page = static_cast<size_t>(number) / kPageEntries;
  if (number < 0 || page >= kPages) return nullptr;
  Page* entries = pages_[page].load(std::memory_order_acquire);
  return entries != nullptr ? &(*entries)[static_cast<size_t>(number) % kPageEntries] : nullptr;
}

Result<void> SocketTable::insert(std::shared_ptr<Socket> socket) {
  const int number = socket->number();
  const auto page = static_cast<size_t>(number) / kPageEntries;
  if (number < 0 || page >= kPages) return fail(EMFILE);
  if (pages_[page].load(std::memory_order_acquire) == nullptr) {
    auto fresh = std::make_unique<Page>();
    Page* expected = nullptr;
    if (pages_[page].compare_exchange_strong(expected, fresh.get(), std::memory_order_acq_rel)) {
      (void)fresh.release();  // owned by the table from now on
    }
  }
  Entry& place = *entry(number);
  const std::lock_guard lock(place.lock);
  place.socket.swap(socket);
  place.owner = current_process();
  return {};
}

std::shared_ptr<Socket> SocketTable::find(int number) {
  Entry* place = entry(number);
  if (place == nullptr) return nullptr;
  const std::lock_guard lock(place->lock);
  return place->owner == current_process() ? place->socket : nullptr;
}

std::shared_ptr<Socket> SocketTable::remove(int number) {
  Entry* place = entry(number);
  if (place == nullptr) return nullptr;
  const std::lock_guard lock(place->lock);
  return place->owner == current_process() ? std::move(place->socket) : nullptr;
}

bool SocketTable::remove_inherited(int number) {
  Entry* place = entry(number);
  if (place == nullptr) return false;
  const std::lock_guard lock(place->lock);
  if (!place->socket || place->owner == current_process()) return false;
  // Leaks the reference: the socket's resources belong to the parent, and its destructor must not run here.
  (void)new std::shared_ptr<Socket>(std::move(place->socket));
  return true;
}

}  // namespace verbena::rsockets
