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

// Watches orphans, by slot. An orphan is a process that holds a slot from a former agent and has not
// reconnected to this one.
//
// The end of an orphan is noticed by its pidfd. The pidfd comes from the takeover state or is opened by the
// recorded pid. An orphan without a pidfd and a pid counts as ended if it has not reconnected within 30
// seconds. In this case the former agent did not see the orphan's pid namespace. No pidfd was recorded
// because the kernel lacks SO_PEERPIDFD or that agent was of an older release.
class Orphans {
 public:
  using OnEnd = std::function<void(uint32_t slot)>;
  explicit Orphans(EventLoop& loop, Duration unseen_patience = std::chrono::seconds(30))
      : loop_(loop), unseen_patience_(unseen_patience) {}
  ~Orphans();
  Orphans(const Orphans&) = delete;
  Orphans& operator=(const Orphans&) = delete;

  // Watches the slot's process, and calls `on_end` when it ends. Returns false if it has ended already.
  bool watch(const LeasedSlot& slot, OnEnd on_end);
  // Stops watching the slot's process. Called when the process reconnects or its slot is taken back. Returns
  // whether the slot had an orphan.
  bool remove(uint32_t slot);
  bool contains(uint32_t slot) const { return orphans_.contains(slot); }
  bool empty() const { return orphans_.empty(); }

 private:
  struct Orphan {
    SharedProcess process;
    std::optional<EventLoop::TimerId> timer;  // only without a pidfd
  };
  // Returns the pidfd, a null pointer if the process has ended, or nullopt if neither pidfd nor pid is known.
  static std::optional<SharedProcess> find_process(const Lessee& lessee);

  EventLoop& loop_;
  const Duration unseen_patience_;
  std::map<uint32_t, Orphan> orphans_;
};

}  // namespace verbena::agent
