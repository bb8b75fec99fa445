// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "agent/sessions/session_reply.h"
#include "agent/slots/slot_leases.h"
#include "agent/slots/slot_table.h"
#include "agent/slots/wire.h"
#include "control/protocol/messages.h"

namespace verbena::agent {

// Carries out clients' requests to lease a slot, reclaim it after a restart of the agent, and return it.
class SlotRequests {
 public:
  SlotRequests(SlotLeases& slots, Wire& wire) : slots_(slots), wire_(wire) {}

  RequestResult<protocol::TakeSlotReply> take_slot(const Lessee& client,
                                                   const protocol::TakeSlotRequest& request);
  RequestResult<> keep_slot(const Lessee& client, const protocol::SlotRequest& request);
  RequestResult<> claim_slot(const Lessee& client, const protocol::ClaimSlotRequest& request);
  RequestResult<> return_slot(const Lessee& client, const protocol::SlotRequest& request);

 private:
  SlotLeases& slots_;
  Wire& wire_;
};

}  // namespace verbena::agent
