// SPDX-License-Identifier: Apache-2.0
#include "agent/slots/socket_calls.h"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <utility>

#include <pthread.h>

#include "base/detached_thread.h"
#include "base/log.h"

namespace verbena::agent {
namespace {

constexpr size_t kStack = 256 << 10;
constexpr auto kPatience = std::chrono::milliseconds(50);

}  // namespace

struct SocketCalls::Work {
  std::mutex mutex;
  std::condition_variable progress;
  // Under the mutex
  std::deque<Call> next;
  bool at_work = false;  // a thread runs
  bool is_late = false;  // a call took longer than kPatience
  uint64_t asked = 0;    // calls so far
  uint64_t made = 0;
};

SocketCalls::SocketCalls() : work_(std::make_shared<Work>()) {}

void* SocketCalls::run(void* argument) {
  const std::unique_ptr<std::shared_ptr<Work>> owned(static_cast<std::shared_ptr<Work>*>(argument));
  Work& work = **owned;
  ::pthread_setname_np(::pthread_self(), "verbena-sockets");
  std::unique_lock lock(work.mutex);
  while (!work.next.empty()) {
    {
      const Call call = std::move(work.next.front());
      work.next.pop_front();
      lock.unlock();
      call();
    }
    lock.lock();
    ++work.made;
    if (work.next.empty()) work.is_late = false;
    work.progress.notify_all();
  }
  work.at_work = false;
  return nullptr;
}

size_t SocketCalls::waiting() const {
  const std::lock_guard lock(work_->mutex);
  return static_cast<size_t>(work_->asked - work_->made);
}

void SocketCalls::make(Call call) {
  std::unique_lock lock(work_->mutex);
  work_->next.push_back(std::move(call));
  const uint64_t number = ++work_->asked;
  if (!work_->at_work) {
    auto argument = std::make_unique<std::shared_ptr<Work>>(work_);
    work_->at_work = start_detached_thread(run, argument.get(), kStack);
    if (!work_->at_work) return log_warning("no thread can be started: a socket is not set up for now");
    argument.release();  // owned by the thread now
  }
  if (work_->is_late) return;
  work_->is_late = !work_->progress.wait_for(lock, kPatience, [&] { return work_->made >= number; });
}

}  // namespace verbena::agent
