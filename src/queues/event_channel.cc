// SPDX-License-Identifier: Apache-2.0
#include "queues/event_channel.h"

#include <mutex>
#include <utility>

#include <sys/eventfd.h>
#include <sys/uio.h>

namespace verbena::queues {

Result<std::unique_ptr<EventChannel>> EventChannel::create() {
  UniqueFd fd(::eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC));
  if (!fd) return fail(errno);
  return std::unique_ptr<EventChannel>(new EventChannel(std::move(fd)));
}

void EventChannel::post(EventSource& source) {
  {
    std::lock_guard guard(lock_);
    if (source.pending_++ == 0) sources_.push_back(source);
  }
  const uint64_t one = 1;
  // Fails only when 2^64 - 2 events wait.
  [[maybe_unused]] const ssize_t written = ::write(fd_.get(), &one, sizeof one);
}

void EventChannel::end() {
  {
    std::lock_guard guard(lock_);
    if (std::exchange(ended_, true)) return;
  }
  const uint64_t more_than_anyone_reads = uint64_t{1} << 62;
  [[maybe_unused]] const ssize_t written =
      ::write(fd_.get(), &more_than_anyone_reads, sizeof more_than_anyone_reads);
}

Result<void> EventChannel::wait() {
  uint64_t one;
  if (::read(fd_.get(), &one, sizeof one) < 0) return fail(errno);
  return {};
}

void EventChannel::withdraw(EventSource& source) {
  uint32_t pending;
  {
    std::lock_guard guard(lock_);
    source.hook_.unlink();
    pending = std::exchange(source.pending_, 0);
  }
  // The descriptor must not stay readable for events that are gone. RWF_NOWAIT, because a taker may be
  // faster, and the application may have left the descriptor blocking. A kernel before 5.8 cannot; there
  // take() finds out.
  uint64_t one;
  iovec into{&one, sizeof one};
  while (pending-- > 0 && ::preadv2(fd_.get(), &into, 1, -1, RWF_NOWAIT) == sizeof one) {
  }
}

}  // namespace verbena::queues
