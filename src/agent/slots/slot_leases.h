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

// Lends slots to sessions and takes them back, also from processes that end before they have come back from a
// former agent.
class SlotLeases {
 public:
  struct Surroundings {
    std::function<void()> on_wire;               // it was down until now
    std::function<void(uint32_t slot)> on_slot;  // has another owner, or none: the vault is to know
    std::function<void()> on_survivor;           // a process has come back for its slot
    std::function<void()> on_return;             // a slot was given back, or an orphan is gone
    // It is about to be taken back: given back by its process, or that has ended with it.
    std::function<void(const LeasedSlot& slot, bool in_order)> on_end;
  };
  // What there is on a slot ends with it: counters and XRC domains.
  SlotLeases(EventLoop& loop, Wire& wire, SlotTable& slots, CounterPublisher& counters, DomainTable& domains,
             Surroundings surroundings);

  // Errors: as SlotTable::lend(); EDQUOT also while the user has given back more than was read of.
  Result<LeasedSlot> lend(const Borrower& borrower);
  // As of SlotTable.
  Result<void> keep(uint32_t index, const Borrower& borrower);
  Result<void> claim(uint32_t index, const protocol::SlotSecret& secret, const Borrower& borrower);
  Result<void> take_back(uint32_t index, uint64_t session);
  // Takes back the slots of a session that is gone: all but the first few in turns of its user.
  void take_back_all(uint64_t session);
  // The slots of a former agent, some of whose processes live; these are watched from then on.
  Result<void> adopt(TakeoverState::Contents& contents) {
    return slots_.adopt(contents, MonotonicClock::now());
  }
  void watch_orphans();
  // Looks for the wire again only after a while.
  void pause_wire();
  // Takes the port if there is no wire yet and the port is free. The agent calls it every
  // kWireInterval while it has no wire.
  void seek_wire(TimePoint now);
  static constexpr Duration kWireInterval = std::chrono::milliseconds(500);

  // The first lent slot from `index` on.
  std::optional<LeasedSlot> find(uint32_t from) const { return slots_.find_lent(from); }
  std::optional<LeasedSlot> find(uint32_t from, std::optional<uid_t> user) const {
    return user ? slots_.find_lent_to(*user, from) : find(from);
  }
  bool is_lent_to_session(uint32_t index, uint64_t session) const;
  // Whether the QP is in a slot that is lent to this user.
  bool is_qpn_of(uint32_t qpn, uid_t user) const;
  // Whose the slot is; kNobody: nobody's now.
  uid_t user_of(uint32_t slot) const;
  const Orphans& orphans() const { return orphans_; }

 private:
  // A process of before has come back, or was not let.
  Result<void> welcome(uint32_t index, Result<void> kept);
  // False: that was the rest.
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
