// SPDX-License-Identifier: Apache-2.0
#include "agent/orphans.h"

#include <utility>

#include "agent/process.h"

namespace verbena::agent {

Orphans::~Orphans() {
  while (!processes_.empty()) remove(processes_.begin()->first);
}

bool Orphans::watch(const LentSlot& slot, OnEnd on_end) {
  if (processes_.contains(slot.index)) return true;
  UniqueFd process = watch_process(slot.borrower.pid);
  if (!process || !is_same_start(start_time_of(slot.borrower.pid), slot.borrower.start_time)) return false;
  const uint32_t index = slot.index;
  loop_.watch(process.get(), EPOLLIN, [index, end = std::move(on_end)](uint32_t) { end(index); });
  processes_[index] = std::move(process);
  return true;
}

bool Orphans::remove(uint32_t slot) {
  const auto found = processes_.find(slot);
  if (found == processes_.end()) return false;
  loop_.forget(found->second.get());
  processes_.erase(found);
  return true;
}

}  // namespace verbena::agent
