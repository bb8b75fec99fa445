// SPDX-License-Identifier: Apache-2.0
#include "agent/message_witness.h"

#include <array>
#include <cstddef>
#include <memory>
#include <system_error>
#include <utility>

#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "base/detached_thread.h"
#include "base/processor_clock.h"
#include "control/model/message_socket.h"

namespace verbena::agent {

// Receives no descriptors, so the kernel drops the message's copy.
MessageWitness::Send MessageWitness::send_to_itself() {
  auto ends = std::make_shared<Result<control::SocketPair>>(control::make_socket_pair());
  return [ends] {
    if (!*ends) return Duration::zero();
    const int own = (*ends)->ours.get();
    std::array<std::byte, 1> message{};
    const TimePoint before = ProcessorClock::now();
    (void)control::send_message(own, message, {&own, 1});
    while (::recv((*ends)->theirs.get(), message.data(), message.size(), MSG_DONTWAIT) > 0) {
    }
    return ProcessorClock::now() - before;
  };
}

MessageWitness::MessageWitness(EventLoop& loop, std::function<void(Duration)> on_excess, Send send)
    : loop_(loop),
      on_excess_(std::move(on_excess)),
      send_(std::move(send)),
      news_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (news_) loop_.watch(news_.get(), EPOLLIN, [this](uint32_t) { report(); });
}

MessageWitness::~MessageWitness() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
  if (news_) loop_.forget(news_.get());
}

void MessageWitness::watch_until(TimePoint end) {
  {
    const std::lock_guard lock(mutex_);
    is_asked_ = true;
    end_ = std::max(end_, end);
  }
  changed_.notify_one();
  if (thread_.joinable() || !news_) return;
  const SignalsBlocked blocked;  // inherited by the new thread
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {  // the next call may be able to
    return;
  }
  ::pthread_setname_np(thread_.native_handle(), "verbena-witness");
}

void MessageWitness::run() {
  std::unique_lock lock(mutex_);
  while (!is_ending_) {
    if (!std::exchange(is_asked_, false) && MonotonicClock::now() >= end_) {
      changed_.wait(lock);
      continue;
    }
    lock.unlock();
    const Duration excess = send_() - kNormal;
    lock.lock();
    if (excess > Duration::zero()) {
      excess_ += excess;
      ::eventfd_write(news_.get(), 1);
    }
    if (!is_ending_) changed_.wait_for(lock, kInterval);
  }
}

void MessageWitness::report() {
  eventfd_t ignored;
  ::eventfd_read(news_.get(), &ignored);
  Duration excess;
  {
    const std::lock_guard lock(mutex_);
    excess = std::exchange(excess_, Duration::zero());
  }
  if (excess > Duration::zero()) on_excess_(excess);
}

}  // namespace verbena::agent
