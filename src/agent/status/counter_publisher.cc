// SPDX-License-Identifier: Apache-2.0
#include "agent/status/counter_publisher.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <utility>

namespace verbena::agent {
namespace {

// Update intervals of the counter files: while a program has one open, and while none has. The kernel's
// counters are at most 10 ms old, too (the lifespan attribute).
constexpr Duration kIntervalWhileRead = std::chrono::milliseconds(10);
constexpr Duration kIntervalUnread = std::chrono::seconds(1);
constexpr Duration kLeastPause = std::chrono::milliseconds(8);

// Maximum work per reading (QpsRead::work), about half a millisecond. Other work of the agent runs between
// two readings.
constexpr size_t kAtOnce = 1024;
constexpr Duration kRest = std::chrono::milliseconds(1);

// Maximum number of unread returned slots per user.
constexpr size_t kMaxUnfinished = 64;

}  // namespace

void CounterPublisher::show_in(StateWriter& state) {
  state_ = &state;
  if (state.readers().fd() < 0) return;
  loop_.watch(state.readers().fd(), EPOLLIN, [this](uint32_t) { on_readers(); });
}

void CounterPublisher::collect() {
  const TimePoint now = MonotonicClock::now();
  if (now - collected_ < kLeastPause) return;
  collected_ = now;
  sweep_.begin();
  read();
  show();
}

void CounterPublisher::read() {
  const TimePoint now = MonotonicClock::now();
  allowance_.spend(sweep_.advance(std::min(allowance_.at(now), kAtOnce)));
  if (!sweep_.has_work() || rest_) return;
  // Pauses for as long as the reading took, if that is longer than kRest: reading is slow, or other processes
  // have the processor.
  const TimePoint end = MonotonicClock::now();
  rest_ = loop_.at(end + std::max(kRest, end - now), [this] {
    rest_.reset();
    read();
    show();
  });
}

DeviceCounters CounterPublisher::of(uint32_t device_index) {
  collect();
  const auto sums = counters_.devices().find(device_index);
  return sums != counters_.devices().end() ? sums->second : DeviceCounters{};
}

void CounterPublisher::collect_regularly() {
  if (next_ || !slots_.find_leased(0)) return;
  const bool read = state_ != nullptr && state_->readers().any();
  next_ = loop_.at(MonotonicClock::now() + (read ? kIntervalWhileRead : kIntervalUnread), [this] {
    next_.reset();
    collect();
    collect_regularly();
  });
}

void CounterPublisher::finish(const LeasedSlot& slot) {
  sweep_.finish(slot);
  read();
}

bool CounterPublisher::is_behind(uid_t user) const {
  return sweep_.unfinished(user) >= kMaxUnfinished;
}

void CounterPublisher::show() {
  if (state_ == nullptr) return;
  std::map<std::string, DeviceCounters> by_link;
  for (const control::Link& link : links_.snapshot().links) {
    const auto sums = counters_.devices().find(link.device_index);
    if (sums != counters_.devices().end()) by_link[link.name] = sums->second;
  }
  state_->show_counters(std::move(by_link));
}

void CounterPublisher::on_readers() {
  const bool had_any = state_->readers().any();
  state_->readers().take_news();
  const int readers = state_->readers().fd();
  loop_.set_events(readers, 0);
  loop_.at(MonotonicClock::now() + CounterReaders::kPause,
           [this, readers] { loop_.set_events(readers, EPOLLIN); });
  if (had_any || !state_->readers().any()) return;
  if (next_) loop_.cancel(*std::exchange(next_, std::nullopt));
  collect();
  collect_regularly();
}

void CounterPublisher::links_changed(const std::vector<control::Link>& before) {
  std::vector<uint32_t> devices;
  for (const control::Link& link : links_.snapshot().links) devices.push_back(link.device_index);
  counters_.set_devices(devices);
  for (const control::Link& link : links_.snapshot().links) {
    const auto was = std::ranges::find(before, link.device_index, &control::Link::device_index);
    if (was != before.end() && was->up && !link.up) counters_.link_downed(link.device_index);
  }
}

}  // namespace verbena::agent
