// SPDX-License-Identifier: Apache-2.0
#include "adapter/queues/event_channel.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/cancellation_off.h"

namespace verbena::queues {
namespace {

// Bypasses the C library, whose write() is a cancellation point: the caller may hold a shard's lock. Fails
// only when 2^64 - 2 events wait. Writes nothing if the application has closed the descriptor, as its number
// may be another file's now.
void add_to(const OwnFd& fd, uint64_t count) {
  if (fd.is_ours()) ::syscall(SYS_write, fd.get(), &count, sizeof count);
}

}  // namespace

Result<std::unique_ptr<EventChannel>> EventChannel::create() {
  UniqueFd fd(::eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC));
  if (!fd) return fail(errno);
  return std::unique_ptr<EventChannel>(new EventChannel(std::move(fd)));
}

void EventChannel::post(EventSource& source) {
  const Bell* bell = nullptr;
  bool is_own = false;
  {
    std::lock_guard guard(lock_);
    if (source.pending_++ == 0) sources_.push_back(source);
    if (bell_ != nullptr && !given_) {
      given_ = true;
      bell = bell_;
      is_own = ::pthread_equal(waiter_, ::pthread_self()) != 0;
    }
  }
  if (bell == nullptr) return add_to(fd_, 1);
  if (!is_own) bell->ring();
}

void EventChannel::end() {
  const Bell* bell;
  {
    std::lock_guard guard(lock_);
    if (std::exchange(ended_, true)) return;
    bell = bell_;
  }
  const uint64_t more_than_anyone_reads = uint64_t{1} << 62;
  add_to(fd_, more_than_anyone_reads);
  if (bell != nullptr) bell->ring();
}

Result<void> EventChannel::wait() {
  uint64_t one;
  if (!fd_.is_ours()) return has_some() ? Result<void>() : fail(EBADF);
  const CancellationAllowed asleep;
  if (::read(fd_.get(), &one, sizeof one) < 0) return fail(errno);
  return {};
}

void EventChannel::withdraw(EventSource& source) {
  uint32_t pending;
  {
    std::lock_guard guard(lock_);
    source.hook_.unlink();
    pending = std::exchange(source.pending_, 0);
    // The descriptor does not count the waiter's event.
    if (pending > 0 && given_ && sources_.empty()) {
      given_ = false;
      --pending;
    }
  }
  // The descriptor must not stay readable for withdrawn events. RWF_NOWAIT, as a thread in take() may be
  // faster, and the application may have left the descriptor blocking. Kernels before 5.8 do not have it;
  // there take() notices.
  uint64_t one;
  iovec into{&one, sizeof one};
  while (pending-- > 0 && fd_.is_ours() && ::preadv2(fd_.get(), &into, 1, -1, RWF_NOWAIT) == sizeof one) {
  }
}

bool EventChannel::is_nonblocking() const {
  const int flags = ::fcntl(fd_.get(), F_GETFL);
  return flags < 0 || (flags & O_NONBLOCK) != 0;
}

// ---- the waiter

bool EventChannel::dismiss_waiter(Duration patience) {
  const TimePoint end = MonotonicClock::now() + patience;
  for (bool first = true;; first = false) {
    {
      std::lock_guard guard(lock_);
      dismissed_ = true;
      if (bell_ == nullptr) return true;
      if (first) bell_->ring();
    }
    if (MonotonicClock::now() >= end) return false;
    ::sched_yield();
  }
}

// The descriptor reports events that are already pending. If this thread is the waiter already, it left
// without a destructor, by a jump out of a signal handler.
EventChannel::Waiter::Waiter(EventChannel& channel, const Bell& bell) : channel_(channel) {
  std::lock_guard guard(channel.lock_);
  const bool is_free = channel.bell_ == nullptr || ::pthread_equal(channel.waiter_, ::pthread_self()) != 0;
  const bool is_told = !channel.sources_.empty() && !channel.given_;
  has_the_place_ = is_free && !is_told && !channel.dismissed_ && !channel.ended_;
  if (!has_the_place_) return;
  channel.bell_ = &bell;
  channel.waiter_ = ::pthread_self();
}

EventChannel::Waiter::~Waiter() {
  if (!has_the_place_) return;
  bool owed;
  {
    std::lock_guard guard(channel_.lock_);
    channel_.bell_ = nullptr;
    owed = std::exchange(channel_.given_, false);
  }
  if (owed) add_to(channel_.fd_, 1);
}

bool EventChannel::Waiter::is_served() const {
  std::lock_guard guard(channel_.lock_);
  return channel_.given_ || channel_.ended_ || channel_.dismissed_;
}

}  // namespace verbena::queues
