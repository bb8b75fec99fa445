// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "agent/cm/binding.h"
#include "agent/cm/client_role.h"
#include "control/protocol/connection_messages.h"

namespace verbena::agent {

// Restores a client's identifiers and connections after the client has connected to a new agent. The client
// sends one request for each identifier.
class RestoreRequests : private ClientRole {
 public:
  explicit RestoreRequests(const ClientParts& parts)
      : ClientRole(parts), binding_(parts.service, parts.host.user()) {}

  RouteOutcome restore(const protocol::CmRestoreRequest& request);

 private:
  Outcome restore_state(CmIdentifier& id, const protocol::CmRestoreRequest& request);
  Outcome restore_route(CmIdentifier& id, const protocol::CmRoute& route);
  Outcome restore_connection(CmIdentifier& id, const protocol::CmRestoreRequest& request);

  Binding binding_;
};

}  // namespace verbena::agent
