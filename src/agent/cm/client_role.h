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

// The parts of a CmClient that all ClientRole classes use.
struct ClientParts {
  CmService& service;
  CmClientHost& host;
  ClientLimits& limits;
  ClientChannels& channels;
  ClientIdentifiers& identifiers;
};

// The result of a request: the content of the reply, or the error for which the request is refused. CmClient
// sends an event that the request causes after the reply, when the program's own state is up to date.
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
  uint32_t events;  // number of events sent to the identifier, without those still queued
};
using DestroyOutcome = control::AdminResult<Destroyed>;

// Base of the classes that carry out the requests of one subject, such as AddressRequests. These classes do
// not use each other: shared code is in ClientParts or binding.h. They trust nothing in a request.
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
  // Fails with EINVAL if `qpn` exceeds 24 bits, or EPERM if the QP belongs to another user.
  Outcome check_qpn(uint32_t qpn) const;

  CmService& service_;
  CmClientHost& host_;
  ClientLimits& limits_;
  ClientChannels& channels_;
  ClientIdentifiers& identifiers_;
};

}  // namespace verbena::agent
