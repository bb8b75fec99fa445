// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "agent/sessions/served_users.h"
#include "agent/slots/slot_table.h"
#include "agent/takeover/takeover_state.h"
#include "base/result.h"

namespace verbena::agent {

// Records the slots, links and connections of this agent in its takeover state, for the next agent.
class TakeoverRecord {
 public:
  TakeoverRecord(const SlotTable& slots, const ServedUsers& served) : slots_(slots), served_(served) {}

  Result<void> create();
  // Returns the end of the takeover state that clients get.
  int client_end() const { return takeover_state_.client_end(); }

  void put_slot(uint32_t index);
  // REQUIRES: `link_file` stays open until the next call
  void put_links(int link_file);
  // REQUIRES: the ledger stays open, and the same file
  void put_ledger(int ledger);
  // Writes the complete current state, and drops all older messages.
  void rewrite();

 private:
  const SlotTable& slots_;
  const ServedUsers& served_;
  TakeoverState takeover_state_;
  int link_file_ = -1;
  int ledger_ = -1;
};

}  // namespace verbena::agent
