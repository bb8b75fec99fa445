// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "agent/event_loop.h"
#include "agent/slot_table.h"
#include "base/unique_fd.h"

namespace verbena::agent {

// Processes that hold a slot of a former agent and have not come back to this one, by slot.
class Orphans {
 public:
  using OnEnd = std::function<void(uint32_t slot)>;
  explicit Orphans(EventLoop& loop) : loop_(loop) {}
  ~Orphans();
  Orphans(const Orphans&) = delete;
  Orphans& operator=(const Orphans&) = delete;

  // False: the process has ended already.
  bool watch(const LentSlot& slot, OnEnd on_end);
  // True: there was one.
  bool remove(uint32_t slot);
  bool contains(uint32_t slot) const { return processes_.contains(slot); }
  bool empty() const { return processes_.empty(); }

 private:
  EventLoop& loop_;
  std::map<uint32_t, UniqueFd> processes_;
};

}  // namespace verbena::agent
