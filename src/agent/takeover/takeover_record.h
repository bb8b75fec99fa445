// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "agent/sessions/served_users.h"
#include "agent/slots/slot_table.h"
#include "agent/takeover/takeover_state.h"
#include "base/result.h"

namespace verbena::agent {

// Has the vault say what the tables say: the next agent will go by it.
class TakeoverRecord {
 public:
  TakeoverRecord(const SlotTable& slots, const ServedUsers& served) : slots_(slots), served_(served) {}

  Result<void> create();
  // The end to give to clients.
  int client_end() const { return vault_.client_end(); }

  void put_slot(uint32_t index);
  // The file stays open until the next one is put.
  void put_links(int link_file);
  // The file stays the same, and open.
  void put_ledger(int ledger);
  // All of it again, and nothing of before.
  void rewrite();

 private:
  const SlotTable& slots_;
  const ServedUsers& served_;
  TakeoverState vault_;
  int link_file_ = -1;
  int ledger_ = -1;
};

}  // namespace verbena::agent
