// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include <sys/types.h>

#include "agent/event_loop.h"
#include "agent/slots/domain_table.h"
#include "agent/slots/orphans.h"
#include "agent/slots/slot_table.h"
#include "agent/slots/wire.h"
#include "agent/status/counter_publisher.h"
#include "agent/takeover/takeover_state.h"
#include "base/result.h"
#include "base/time.h"

namespace verbena::agent {

// Leases slots to sessions and takes them back. Also takes back the slots of processes that end before they
// reconnect after an agent's restart.
class SlotLeases {
 public:
  struct Surroundings {
    std::function<void()> on_wire;               // the port was unavailable until now
    std::function<void(uint32_t slot)> on_slot;  // the slot's holder changed: update the takeover state
    std::function<void()> on_survivor;           // a process has reclaimed its slot
    std::function<void()> on_return;             // a slot was given back, or an orphan is gone
    // The slot is about to be taken back. `in_order`: its process gave it back; otherwise the process has
    // ended.
    std::function<void(const LeasedSlot& slot, bool in_order)> on_end;
  };
  // Counters and XRC domains of a slot end with its lease.
  SlotLeases(EventLoop& loop, Wire& wire, SlotTable& slots, CounterPublisher& counters, DomainTable& domains,
             Surroundings surroundings);

  // Errors: as SlotTable::lend(). Also EDQUOT while counters of slots that the user gave back are still
  // unread.
  Result<LeasedSlot> lease(const Lessee& lessee);
  // As in SlotTable.
  Result<void> keep(uint32_t index, const Lessee& lessee);
  Result<void> claim(uint32_t index, const protocol::SlotSecret& secret, const Lessee& lessee);
  Result<void> take_back(uint32_t index, uint64_t session);
  // Takes back the slots of a session that has ended: the first two at once, the others in its user's turns.
  void take_back_all(uint64_t session);
  // Adopts the slots of a former agent from its takeover state. watch_orphans() then watches their processes.
  Result<void> adopt(TakeoverState::Contents& contents) {
    return slots_.adopt(contents, MonotonicClock::now());
  }
  void watch_orphans();
  // Delays the next attempt of seek_wire() by half of kWireInterval.
  void pause_wire();
  // Binds the port if the agent has no wire yet and the port is free. The agent calls it every kWireInterval
  // while it has no wire.
  void seek_wire(TimePoint now);
  static constexpr Duration kWireInterval = std::chrono::milliseconds(500);

  // Returns the first leased slot from index `from` on.
  std::optional<LeasedSlot> find(uint32_t from) const { return slots_.find_leased(from); }
  std::optional<LeasedSlot> find(uint32_t from, std::optional<uid_t> user) const {
    return user ? slots_.find_lent_to(*user, from) : find(from);
  }
  bool is_leased_to_session(uint32_t index, uint64_t session) const;
  // Whether the QP is in a slot that is leased to this user.
  bool is_qpn_of(uint32_t qpn, uid_t user) const;
  // Returns the user that holds the slot, or kNobody.
  uid_t user_of(uint32_t slot) const;
  const Orphans& orphans() const { return orphans_; }

 private:
  // Completes keep() and claim(): passes their result on, and announces a reclaimed slot.
  Result<void> welcome(uint32_t index, Result<void> kept);
  // Takes back a few slots of the session. Returns whether there are more.
  bool take_back_some(uint64_t session);

  EventLoop& loop_;
  Wire& wire_;
  SlotTable& slots_;
  CounterPublisher& counters_;
  DomainTable& domains_;
  const Surroundings surroundings_;
  Orphans orphans_;
  TimePoint wire_retry_{};
};

}  // namespace verbena::agent
