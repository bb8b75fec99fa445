// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "agent/event_loop.h"
#include "agent/slots/process.h"
#include "agent/slots/slot_table.h"
#include "base/time.h"

namespace verbena::agent {

// Orphans: processes that hold a slot from a former agent and have not reconnected to this one. By slot.
//
// An orphan without a pidfd has 30 seconds to reconnect, and is then given up. There is no pidfd if the
// former agent was of an older release. There is none either if the process is in a pid namespace that the
// agent does not see and the kernel lacks SO_PEERPIDFD.
class Orphans {
 public:
  using OnEnd = std::function<void(uint32_t slot)>;
  explicit Orphans(EventLoop& loop, Duration unseen_patience = std::chrono::seconds(30))
      : loop_(loop), unseen_patience_(unseen_patience) {}
  ~Orphans();
  Orphans(const Orphans&) = delete;
  Orphans& operator=(const Orphans&) = delete;

  // Watches the process of the slot, and calls `on_end` when it ends. False if it has ended already.
  bool watch(const LeasedSlot& slot, OnEnd on_end);
  // Returns whether the slot had an orphan.
  bool remove(uint32_t slot);
  bool contains(uint32_t slot) const { return orphans_.contains(slot); }
  bool empty() const { return orphans_.empty(); }

 private:
  struct Orphan {
    SharedProcess process;
    std::optional<EventLoop::TimerId> timer;  // only without a process
  };
  // Returns nothing if the process is not visible, and a null pointer if it has ended.
  static std::optional<SharedProcess> find_process(const Lessee& lessee);

  EventLoop& loop_;
  const Duration unseen_patience_;
  std::map<uint32_t, Orphan> orphans_;
};

}  // namespace verbena::agent
