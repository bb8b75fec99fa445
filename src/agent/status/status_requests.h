// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "agent/cm/service.h"
#include "agent/links/link_publisher.h"
#include "agent/sessions/held_files.h"
#include "agent/sessions/served_users.h"
#include "agent/sessions/session_reply.h"
#include "agent/slots/slot_leases.h"
#include "agent/slots/slot_table.h"
#include "agent/slots/wire.h"
#include "agent/status/counter_publisher.h"
#include "control/protocol/connection_messages.h"
#include "control/protocol/messages.h"

namespace verbena::agent {

// Carries out the requests of `verbena status`, which any client may make. A client sees only slots and
// connection identifiers of its own user; root and the agent's user see all. Every client sees the counters
// of devices and of the connection manager, which are sums over all users.
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
  // Returns a file that lists connection identifiers (rdma_cm_id). EBUSY while the file of the session's
  // former list is still open in a process.
  SlicedResult<protocol::CmIdsReply> get_cm_ids(const Lessee& client,
                                                const protocol::GetCmIdsRequest& request);

 private:
  const Subjects of_;
};

}  // namespace verbena::agent
