// SPDX-License-Identifier: Apache-2.0
#include "agent/slots/orphans.h"

#include <utility>

namespace verbena::agent {

Orphans::~Orphans() {
  while (!orphans_.empty()) remove(orphans_.begin()->first);
}

std::optional<SharedProcess> Orphans::find_process(const Lessee& lessee) {
  if (lessee.process) return has_ended(lessee.process->get()) ? nullptr : lessee.process;
  if (lessee.pid <= 0) return std::nullopt;
  SharedProcess process = share_process(watch_process(lessee.pid));
  return process && is_same_start(start_time_of(lessee.pid), lessee.start_time) ? process : nullptr;
}

bool Orphans::watch(const LeasedSlot& slot, OnEnd on_end) {
  if (orphans_.contains(slot.index)) return true;
  auto end = [index = slot.index, on_end = std::move(on_end)] { on_end(index); };
  const auto process = find_process(slot.lessee);
  if (!process) {
    const auto timer = loop_.at(MonotonicClock::now() + unseen_patience_, std::move(end));
    orphans_[slot.index] = {.process = nullptr, .timer = timer};
    return true;
  }
  if (!*process) return false;
  loop_.watch((*process)->get(), EPOLLIN, [end = std::move(end)](uint32_t) { end(); });
  orphans_[slot.index] = {.process = *process, .timer = std::nullopt};
  return true;
}

bool Orphans::remove(uint32_t slot) {
  auto node = orphans_.extract(slot);
  if (node.empty()) return false;
  const Orphan& orphan = node.mapped();
  if (orphan.process) loop_.forget(orphan.process->get());
  if (orphan.timer) loop_.cancel(*orphan.timer);
  return true;
}

}  // namespace verbena::agent
