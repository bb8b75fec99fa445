// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "agent/cm/address.h"
#include "agent/cm/binding.h"
#include "agent/cm/client_parts.h"
#include "agent/cm/identifier.h"
#include "agent/cm/routes.h"
#include "agent/cm/service.h"
#include "agent/sessions/foreign_closer.h"
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

// Carries out a client's requests about connections: connect, accept, reject, establish, disconnect.
class ConnectionRequests : private ClientRole {
 public:
  explicit ConnectionRequests(const ClientParts& parts) : ClientRole(parts) {}

  Outcome connect(const protocol::CmConnectRequest& request);
  Outcome accept(const protocol::CmConnectRequest& request);
  Outcome reject(const protocol::CmRejectRequest& request);
  EventOutcome establish(const protocol::CmIdRequest& request);
  Outcome disconnect(const protocol::CmIdRequest& request);

 private:
  Outcome connect_stream(CmIdentifier& id, const protocol::ConnectionParameters& parameters);
  Outcome connect_datagram(CmIdentifier& id, const protocol::ConnectionParameters& parameters);
  Outcome answer_request(CmIdentifier& id, const protocol::CmConnectRequest& request);
  Outcome accept_stream(CmIdentifier& id, const protocol::ConnectionParameters& parameters);
  Outcome accept_datagram(CmIdentifier& id, const protocol::CmConnectRequest& request);
  Result<void> send_rejection(CmIdentifier& id, uint8_t reason, ConstBytes data);
};

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

// Carries out a client's requests to join and leave multicast groups. Joining has no effect on the network:
// the process that attaches a QP joins the group on the netdev.
class MulticastRequests : private ClientRole {
 public:
  explicit MulticastRequests(const ClientParts& parts) : ClientRole(parts) {}

  EventOutcome join(const protocol::CmJoinRequest& request);
  Outcome leave(const protocol::CmLeaveRequest& request);
};

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
