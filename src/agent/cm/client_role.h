// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "agent/cm/client_channels.h"
#include "agent/cm/client_host.h"
#include "agent/cm/client_identifiers.h"
#include "agent/cm/client_limits.h"
#include "agent/cm/identifier.h"
#include "agent/cm/service.h"
#include "control/model/admin_error.h"
#include "control/protocol/connection_messages.h"

namespace verbena::agent {

// What the request handlers of a client work with.
struct ClientParts {
  CmService& service;
  CmClientHost& host;
  ClientLimits& limits;
  ClientChannels& channels;
  ClientIdentifiers& identifiers;
};

// What a request has come to: the answer, or why it was refused. An event that follows from the request is
// part of the outcome and leaves after the reply: so it finds the program with its own state in order.
using Outcome = control::AdminResult<void>;
using RouteOutcome = control::AdminResult<protocol::CmRoute>;
struct Done {
  std::optional<protocol::CmEvent> event;
};
using EventOutcome = control::AdminResult<Done>;
struct DoneWithRoute {
  protocol::CmRoute route;
  std::optional<protocol::CmEvent> event;
};
using RouteAndEventOutcome = control::AdminResult<DoneWithRoute>;
struct Destroyed {
  uint32_t events;  // how many it was sent
};
using DestroyOutcome = control::AdminResult<Destroyed>;

// The requests of one subject. Roles do not know one another; what two of them need lies in the parts, or in
// binding.h. They trust nothing in a request.
class ClientRole {
 protected:
  explicit ClientRole(const ClientParts& parts)
      : service_(parts.service),
        host_(parts.host),
        limits_(parts.limits),
        channels_(parts.channels),
        identifiers_(parts.identifiers) {}
  ~ClientRole() = default;

  CmIdentifier* find(uint32_t number) { return identifiers_.find(number); }
  cm::Manager& manager() { return service_.manager(); }
  // Whether the client may speak for this QP.
  Outcome check_qpn(uint32_t qpn) const;

  CmService& service_;
  CmClientHost& host_;
  ClientLimits& limits_;
  ClientChannels& channels_;
  ClientIdentifiers& identifiers_;
};

}  // namespace verbena::agent
