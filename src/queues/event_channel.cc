// SPDX-License-Identifier: Apache-2.0
#include "queues/event_channel.h"

#include <mutex>
#include <utility>

#include <sys/eventfd.h>

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

Result<void> EventChannel::wait() {
  uint64_t one;
  if (::read(fd_.get(), &one, sizeof one) < 0) return fail(errno);
  return {};
}

void EventChannel::withdraw(EventSource& source) {
  std::lock_guard guard(lock_);
  source.hook_.unlink();
  source.pending_ = 0;
}

}  // namespace verbena::queues
