// SPDX-License-Identifier: Apache-2.0
#include "agent/status/state_writer.h"

#include <system_error>
#include <utility>

#include "base/log.h"

namespace verbena::agent {
namespace {

// Interval between retries: a full file system may have room again.
constexpr Duration kRetryInterval = std::chrono::seconds(1);

}  // namespace

StateWriter::StateWriter(std::string directory) : tree_(std::move(directory)) {
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    log_warning("programs that look into /sys see no devices: no thread: {}", error.what());
  }
}

StateWriter::~StateWriter() {
  stop();
}

bool StateWriter::step_aside() {
  stop();
  return tree_.step_aside();
}

bool StateWriter::is_wanted() {
  const std::lock_guard lock(mutex_);
  return stop_ || links_ || !counters_.empty();
}

void StateWriter::stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void StateWriter::show(const std::vector<control::Link>& links) {
  {
    const std::lock_guard lock(mutex_);
    links_ = links;
  }
  changed_.notify_all();
}

void StateWriter::show_counters(std::map<std::string, DeviceCounters> by_link) {
  {
    const std::lock_guard lock(mutex_);
    counters_ = std::move(by_link);
  }
  changed_.notify_all();
}

void StateWriter::wait(TimePoint deadline) {
  if (!thread_.joinable()) return;
  std::unique_lock lock(mutex_);
  const bool done = changed_.wait_for(lock, deadline - MonotonicClock::now(),
                                      [&] { return !links_ && counters_.empty() && !writing_; });
  if (!done) log_warning("the state directory is slow: programs may look into /sys before it is ready");
}

void StateWriter::run() {
  std::unique_lock lock(mutex_);
  std::vector<control::Link> wanted;
  TimePoint next_try = kNever;  // when to write `wanted` again
  while (!stop_) {
    if (links_) {
      wanted = std::move(*links_);
      links_.reset();
      next_try = TimePoint::min();
    }
    const auto counters = std::exchange(counters_, {});
    const bool tries = next_try <= MonotonicClock::now();
    writing_ = tries || !counters.empty();
    if (!writing_) {
      changed_.notify_all();
      if (tree_.has_discarded()) {
        lock.unlock();
        tree_.remove_discarded([this] { return is_wanted(); });
        lock.lock();
      } else if (next_try == kNever) {
        changed_.wait(lock);
      } else {
        changed_.wait_for(lock, next_try - MonotonicClock::now());
      }
      continue;
    }
    lock.unlock();
    if (tries) next_try = tree_.show(wanted) ? kNever : MonotonicClock::now() + kRetryInterval;
    for (const auto& [link, sums] : counters) tree_.show_counters(link, sums);
    lock.lock();
  }
}

}  // namespace verbena::agent
