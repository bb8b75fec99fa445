// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "agent/cm/client_role.h"
#include "agent/sessions/foreign_closer.h"
#include "control/protocol/connection_messages.h"

namespace verbena::agent {

// Carries out a client's requests about event channels and identifiers: create and destroy them, set options,
// move an identifier to another channel.
class IdentifierRequests : private ClientRole {
 public:
  explicit IdentifierRequests(const ClientParts& parts) : ClientRole(parts) {}

  Outcome open_channel(const protocol::CmChannelRequest& request, ClientFile events);
  Outcome close_channel(const protocol::CmChannelRequest& request);
  Outcome create(const protocol::CmCreateRequest& request);
  DestroyOutcome destroy(const protocol::CmIdRequest& request);
  Outcome set_option(const protocol::CmOptionRequest& request);
  Outcome migrate(const protocol::CmMigrateRequest& request);
};

}  // namespace verbena::agent
