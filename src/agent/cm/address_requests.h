// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "agent/cm/address.h"
#include "agent/cm/binding.h"
#include "agent/cm/client_role.h"
#include "agent/cm/route_query.h"
#include "control/protocol/connection_messages.h"

namespace verbena::agent {

// Carries out a client's requests about addresses: bind, resolve an address or a route, and listen.
class AddressRequests : private ClientRole {
 public:
  explicit AddressRequests(const ClientParts& parts)
      : ClientRole(parts), binding_(parts.service, parts.host.user()) {}

  RouteOutcome bind(const protocol::CmBindRequest& request);
  RouteAndEventOutcome resolve_address(const protocol::CmResolveRequest& request);
  EventOutcome resolve_route(const protocol::CmIdRequest& request);
  RouteOutcome listen(const protocol::CmListenRequest& request);

 private:
  control::AdminResult<RouteAnswer> find_route(CmIdentifier& id, CmAddress destination);
  std::optional<CmAddress> this_host(const CmIdentifier& id) const;
  std::optional<protocol::CmEvent> start_resolving(CmIdentifier& id, const RouteAnswer& route,
                                                   uint32_t timeout_ms);
  protocol::CmEvent finish_resolving(CmIdentifier& id, const RouteAnswer& route, int error);

  Binding binding_;
};

}  // namespace verbena::agent
