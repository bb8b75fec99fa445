// SPDX-License-Identifier: Apache-2.0
#include "agent/state_writer.h"

#include <utility>

#include "base/log.h"

namespace verbena::agent {

StateWriter::StateWriter(std::string directory) : tree_(std::move(directory)), thread_([this] { run(); }) {}

StateWriter::~StateWriter() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void StateWriter::show(const std::vector<agent_client::Link>& links) {
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
  std::unique_lock lock(mutex_);
  const bool done = changed_.wait_for(lock, deadline - MonotonicClock::now(),
                                      [&] { return !links_ && counters_.empty() && !writing_; });
  if (!done) log_warning("the state directory is slow: programs may look into /sys before it is ready");
}

void StateWriter::run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    const auto links = std::exchange(links_, std::nullopt);
    const auto counters = std::exchange(counters_, {});
    writing_ = links || !counters.empty();
    if (!writing_) {
      changed_.notify_all();
      changed_.wait(lock);
      continue;
    }
    lock.unlock();
    if (links) tree_.show(*links);
    for (const auto& [link, sums] : counters) tree_.show_counters(link, sums);
    lock.lock();
  }
}

}  // namespace verbena::agent
