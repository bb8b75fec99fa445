// SPDX-License-Identifier: Apache-2.0
#include "agent/status/counter_publisher.h"

#include <fcntl.h>

namespace verbena::agent {

void CounterCollector::set_devices(const std::vector<uint32_t>& devices) {
  std::erase_if(devices_, [&](const auto& entry) { return !std::ranges::count(devices, entry.first); });
  for (const uint32_t device : devices) devices_[device];
}

void CounterCollector::collect(const LeasedSlot& slot, const control::QpsRead& read) {
  Seen& seen = seen_[slot.lease];
  for (size_t i = 0; i < read.qps.size(); ++i) {
    const control::QpNumbers& qp = read.qps[i];
    const uint32_t place = read.places[i];
    const auto sums = devices_.find(qp.device_index);
    if (sums == devices_.end() || qp.qpn != roce::Qpn::in_slot(slot.index, place).value()) continue;
    auto before = seen.find(place);
    if (before == seen.end()) {
      if (!room_.allows(slot.lessee.uid)) continue;
      room_.take(slot.lessee.uid);
      before = seen.emplace(place, Numbers{}).first;
    }
    for (size_t k = 0; k < qp.counters.size(); ++k) {
      const uint64_t counted = before->second[k];
      // A smaller value belongs to another QP with the same number.
      sums->second[k] += qp.counters[k] >= counted ? qp.counters[k] - counted : qp.counters[k];
    }
    before->second = qp.counters;
  }
}

void CounterCollector::forget(const LeasedSlot& slot) {
  const auto seen = seen_.find(slot.lease);
  if (seen == seen_.end()) return;
  room_.give_back(slot.lessee.uid, seen->second.size());
  seen_.erase(seen);
}

void CounterCollector::link_downed(uint32_t device_index) {
  const auto sums = devices_.find(device_index);
  if (sums != devices_.end()) ++sums->second.link_downed;
}

void CounterSweep::begin() {
  if (next_) return;
  next_ = 0;
  place_ = 0;
}

void CounterSweep::finish(const LeasedSlot& slot) {
  UniqueFd page(::fcntl(slot.page, F_DUPFD_CLOEXEC, 0));
  if (!page) {
    log_warning("the last counters of slot {} are lost: errno {}", slot.index, errno);
    return counters_.forget(slot);
  }
  ++unfinished_[slot.lessee.uid];
  ended_.push_back({slot, std::move(page)});
}

size_t CounterSweep::advance(size_t work) {
  size_t done = 0;
  while (done < work && has_work()) done += read_ended() + read_leased();
  return done;
}

size_t CounterSweep::read_leased() {
  if (!next_) return 0;
  const auto slot = slots_.find_leased(*next_);
  if (!slot) {
    next_.reset();
    return 0;
  }
  if (slot->index != *next_ || slot->lease != lease_) place_ = 0;
  lease_ = slot->lease;
  const auto read = control::read_some_qps(slot->page, place_);
  counters_.collect(*slot, read);
  place_ = read.next < protocol::kQpsPerSlot ? read.next : 0;
  next_ = place_ != 0 ? slot->index : slot->index + 1;
  return read.work;
}

size_t CounterSweep::read_ended() {
  if (ended_.empty()) return 0;
  Ended& ended = ended_.front();
  const auto read = control::read_some_qps(ended.page.get(), ended.place);
  counters_.collect(ended.slot, read);
  ended.place = read.next;
  if (ended.place < protocol::kQpsPerSlot) return read.work;
  counters_.forget(ended.slot);
  const auto left = unfinished_.find(ended.slot.lessee.uid);
  if (--left->second == 0) unfinished_.erase(left);
  ended_.pop_front();
  return read.work;
}

size_t CounterSweep::unfinished(uid_t user) const {
  const auto found = unfinished_.find(user);
  return found != unfinished_.end() ? found->second : 0;
}

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
  state.readers().watch_in(loop_, [this] {
    if (next_) loop_.cancel(*std::exchange(next_, std::nullopt));
    collect_regularly();
    collect();
  });
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
    collect_regularly();
    collect();
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
