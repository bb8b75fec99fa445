// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "agent/sessions/served_users.h"
#include "agent/slots/slot_table.h"
#include "agent/takeover/takeover_state.h"
#include "base/result.h"

namespace verbena::agent {

// Writes the slots, links and connections of this agent to its takeover state, from which the next agent
// restores them if this one is killed. Failures to write are logged.
class TakeoverRecord {
 public:
  TakeoverRecord(const SlotTable& slots, const ServedUsers& served) : slots_(slots), served_(served) {}

  Result<void> create();
  // Returns the receiving end of the takeover state, a copy of which is sent to clients of the agent's own
  // user.
  int client_end() const { return takeover_state_.client_end(); }

  void put_slot(uint32_t index);
  // Appends the current link table file. REQUIRES: `link_file` stays open until the next call of this method
  void put_links(int link_file);
  // Appends the file in which the connection manager records its connections (cm/ledger.h). REQUIRES: the
  // ledger stays open as long as this object, and remains the same file
  void put_ledger(int ledger);
  // Appends the complete current state, then removes all older messages.
  void rewrite();

 private:
  const SlotTable& slots_;
  const ServedUsers& served_;
  TakeoverState takeover_state_;
  int link_file_ = -1;
  int ledger_ = -1;
};

}  // namespace verbena::agent
