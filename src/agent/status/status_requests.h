// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "agent/cm/service.h"
#include "agent/links/link_publisher.h"
#include "agent/sessions/held_files.h"
#include "agent/sessions/refused_programs.h"
#include "agent/sessions/session_reply.h"
#include "agent/slots/slot_leases.h"
#include "agent/slots/slot_table.h"
#include "agent/slots/wire.h"
#include "agent/status/counter_publisher.h"
#include "control/protocol/connection_status.h"
#include "control/protocol/messages.h"

namespace verbena::agent {

// Carries out the requests of `verbena status`. Any client may make them, and sees what belongs to its own
// user; root and the agent's user see all.
class StatusRequests {
 public:
  struct Subjects {
    const LinkPublisher& links;
    const Wire& wire;
    const SlotLeases& slots;
    CounterPublisher& counters;
    const RefusedPrograms& refused;
    CmService& connection_management;
    HeldFiles& files;
  };
  explicit StatusRequests(Subjects subjects) : of_(subjects) {}

  RequestResult<protocol::StatusReply> get_status(const Lessee& client,
                                                  const protocol::GetStatusRequest& request);
  RequestResult<protocol::SlotStatusReply> get_slot_status(const Lessee& client,
                                                           const protocol::SlotRequest& request);
  RequestResult<protocol::DeviceCountersReply> get_device_counters(const Lessee& client,
                                                                   const protocol::DeviceRequest& request);
  RequestResult<protocol::CmStatusReply> get_cm_status(const Lessee& client,
                                                       const protocol::GetCmStatusRequest& request);
  // Lists connection identifiers. A session gets the next list once the former one is no longer open in any
  // process.
  SlicedResult<protocol::CmIdsReply> get_cm_ids(const Lessee& client,
                                                const protocol::GetCmIdsRequest& request);

 private:
  const Subjects of_;
};

}  // namespace verbena::agent
