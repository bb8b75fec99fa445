// SPDX-License-Identifier: Apache-2.0
#include "agent/counter_publisher.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <utility>

#include "agent_client/status_reader.h"

namespace verbena::agent {
namespace {

// Files of counters are renewed as often while a program has one open (the kernel's are as old at most: the
// lifespan attribute), and so seldom while none has.
constexpr Duration kLifespan = std::chrono::milliseconds(10);
constexpr Duration kInterval = std::chrono::seconds(1);
constexpr Duration kPause = std::chrono::milliseconds(8);

agent_client::SlotStatus numbers_of(const LentSlot& lent) {
  agent_client::SlotStatus slot;
  slot.index = lent.index;
  slot.pid = lent.borrower.pid;
  agent_client::read_status_page(lent.page, slot, agent_client::QpChoice::kAll);
  return slot;
}

}  // namespace

void CounterPublisher::show_in(StateWriter& state) {
  state_ = &state;
  if (state.readers().fd() < 0) return;
  loop_.watch(state.readers().fd(), EPOLLIN, [this](uint32_t) { on_readers(); });
}

void CounterPublisher::collect() {
  const TimePoint now = MonotonicClock::now();
  if (now - collected_ < kPause) return;
  collected_ = now;
  for (const LentSlot& lent : slots_.lent()) counters_.collect(numbers_of(lent));
  show();
}

DeviceCounters CounterPublisher::of(uint32_t device_index) {
  collect();
  const auto sums = counters_.devices().find(device_index);
  return sums != counters_.devices().end() ? sums->second : DeviceCounters{};
}

void CounterPublisher::collect_regularly() {
  if (next_ || !slots_.find_lent(0)) return;
  const bool read = state_ != nullptr && state_->readers().any();
  next_ = loop_.at(MonotonicClock::now() + (read ? kLifespan : kInterval), [this] {
    next_.reset();
    collect();
    collect_regularly();
  });
}

void CounterPublisher::finish(const LentSlot& slot) {
  counters_.finish(numbers_of(slot));
}

void CounterPublisher::show() {
  if (state_ == nullptr) return;
  std::map<std::string, DeviceCounters> by_link;
  for (const agent_client::Link& link : links_.snapshot().links) {
    const auto sums = counters_.devices().find(link.device_index);
    if (sums != counters_.devices().end()) by_link[link.name] = sums->second;
  }
  state_->show_counters(std::move(by_link));
}

void CounterPublisher::on_readers() {
  const bool had_any = state_->readers().any();
  state_->readers().take_news();
  if (had_any || !state_->readers().any()) return;
  if (next_) loop_.cancel(*std::exchange(next_, std::nullopt));
  collect();
  collect_regularly();
}

void CounterPublisher::links_changed(const std::vector<agent_client::Link>& before) {
  for (const agent_client::Link& link : links_.snapshot().links) {
    const auto was = std::ranges::find(before, link.device_index, &agent_client::Link::device_index);
    if (was != before.end() && was->up && !link.up) counters_.link_downed(link.device_index);
  }
}

}  // namespace verbena::agent
