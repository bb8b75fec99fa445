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
  for (auto& [user, its] : users_) its.is_refused = false;
  for (auto slot = slots_.find_leased(0); slot; slot = slots_.find_leased(slot->index + 1)) {
    OfUser& its = users_[slot->lessee.uid];
    if (its.next) continue;
    its.next = slot->index;
    its.place = 0;
  }
}

void CounterSweep::finish(const LeasedSlot& slot) {
  const uid_t user = slot.lessee.uid;
  UniqueFd page(::fcntl(slot.page, F_DUPFD_CLOEXEC, 0));
  if (!page) {
    log_warning("the last counters of slot {} are lost: errno {}", slot.index, errno);
    return counters_.forget(slot);
  }
  users_[user].ended.push_back({slot, std::move(page)});
}

size_t CounterSweep::advance(size_t work) {
  size_t begun = 0;
  for (size_t left = users_.size(); left > 0 && begun < work; --left) {
    auto next = users_.upper_bound(last_);
    if (next == users_.end()) next = users_.begin();
    last_ = next->first;
    OfUser& its = next->second;
    if (!its.may_read()) continue;
    if (!read_next(last_, its)) {
      users_.erase(next);
    } else if (its.is_reading) {
      begun += kMaxPart;
    }
  }
  return begun;
}

bool CounterSweep::read_next(uid_t user, OfUser& its) {
  if (!its.ended.empty()) {
    const Ended& ended = its.ended.front();
    read(user, its, ended.slot, ended.page.get(), ended.place);
    return true;
  }
  const auto slot = its.next ? slots_.find_leased_to(user, *its.next) : std::nullopt;
  if (!slot) return false;
  if (slot->index != *its.next || slot->lease != its.lease) its.place = 0;
  its.next = slot->index;
  its.lease = slot->lease;
  read(user, its, *slot, slot->page, its.place);
  return true;
}

void CounterSweep::read(uid_t user, OfUser& its, const LeasedSlot& slot, int page, uint32_t place) {
  const bool is_last = !its.ended.empty();
  const auto result = std::make_shared<control::QpsRead>();
  const auto is_read = closer_.work_with(
      user, page, [result, place](int file) { *result = control::read_some_qps(file, place); },
      [this, result, slot, is_last] { take(slot, is_last, *result); });
  its.is_reading = is_read.has_value();
  its.is_refused = !its.is_reading;
}

void CounterSweep::take(const LeasedSlot& slot, bool is_last, const control::QpsRead& read) {
  OfUser& its = users_.at(slot.lessee.uid);
  its.is_reading = false;
  const auto leased = slots_.find_leased_to(slot.lessee.uid, slot.index);
  if (is_last) {
    take_ended(its, read);
  } else if (leased && leased->lease == slot.lease) {
    counters_.collect(slot, read);
    its.place = read.next < protocol::kQpsPerSlot ? read.next : 0;
    if (its.place == 0) its.next = slot.index + 1;
  }  // else the lease has ended, and all of the page is read once more
  on_read_(read.work);
}

void CounterSweep::take_ended(OfUser& its, const control::QpsRead& read) {
  Ended& ended = its.ended.front();
  counters_.collect(ended.slot, read);
  ended.place = read.next;
  if (ended.place < protocol::kQpsPerSlot) return;
  counters_.forget(ended.slot);
  closer_.close(ended.slot.lessee.uid, std::move(ended.page), ended.slot.descriptors);
  its.ended.pop_front();
}

size_t CounterSweep::unfinished(uid_t user) const {
  const auto found = users_.find(user);
  return found != users_.end() ? found->second.ended.size() : 0;
}

namespace {

// Update intervals of the counter files: while a program has one open, and while none has. The kernel's
// counters are at most 10 ms old, too (the lifespan attribute).
constexpr Duration kIntervalWhileRead = std::chrono::milliseconds(10);
constexpr Duration kIntervalUnread = std::chrono::seconds(1);
constexpr Duration kLeastPause = std::chrono::milliseconds(8);

// Time until the sums are shown after a reading, and until more is read where the allowance is used up.
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
  allowance_.spend(sweep_.advance(allowance_.at(MonotonicClock::now())));
  if (sweep_.may_advance()) read_later();
}

void CounterPublisher::read_later() {
  if (rest_) return;
  rest_ = loop_.at(MonotonicClock::now() + kRest, [this] {
    rest_.reset();
    read();
    show();
  });
}

void CounterPublisher::on_read(size_t work) {
  allowance_.give_back(CounterSweep::kMaxPart - std::min(CounterSweep::kMaxPart, work));
  read();
  read_later();
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
