// SPDX-License-Identifier: Apache-2.0
#include "agent/status/counter_sweep.h"

#include <utility>

#include <fcntl.h>

#include "base/log.h"
#include "control/model/status_reader.h"

namespace verbena::agent {

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

}  // namespace verbena::agent
