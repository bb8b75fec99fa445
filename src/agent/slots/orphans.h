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

// Processes that hold a slot of a former agent and have not come back to this one, by slot.
//
// Where nothing tells when a process ends, it has a while to come back and is given up then: its agent was of
// an older release, or it is in a pid namespace that we do not see and the kernel has no SO_PEERPIDFD.
class Orphans {
 public:
  using OnEnd = std::function<void(uint32_t slot)>;
  explicit Orphans(EventLoop& loop, Duration unseen_patience = std::chrono::seconds(30))
      : loop_(loop), unseen_patience_(unseen_patience) {}
  ~Orphans();
  Orphans(const Orphans&) = delete;
  Orphans& operator=(const Orphans&) = delete;

  // False: the process has ended already.
  bool watch(const LeasedSlot& slot, OnEnd on_end);
  // True: there was one.
  bool remove(uint32_t slot);
  bool contains(uint32_t slot) const { return orphans_.contains(slot); }
  bool empty() const { return orphans_.empty(); }

 private:
  struct Orphan {
    SharedProcess process;
    std::optional<EventLoop::TimerId> timer;  // without a process
  };
  // Nothing: it is not seen. Empty: it has ended.
  static std::optional<SharedProcess> find_process(const Borrower& borrower);

  EventLoop& loop_;
  const Duration unseen_patience_;
  std::map<uint32_t, Orphan> orphans_;
};

}  // namespace verbena::agent
