// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "agent/cm/client_role.h"
#include "control/protocol/connection_messages.h"

namespace verbena::agent {

// Carries out a client's requests to join and leave multicast groups. Joining has no effect on the network:
// the process that attaches a QP joins the group on the netdev.
class MulticastRequests : private ClientRole {
 public:
  explicit MulticastRequests(const ClientParts& parts) : ClientRole(parts) {}

  EventOutcome join(const protocol::CmJoinRequest& request);
  Outcome leave(const protocol::CmLeaveRequest& request);
};

}  // namespace verbena::agent
