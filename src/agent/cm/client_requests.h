// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstdint>
#include <optional>

#include <sys/types.h>

#include "agent/cm/address.h"
#include "agent/cm/client_parts.h"
#include "agent/cm/identifier.h"
#include "agent/cm/routes.h"
#include "agent/cm/service.h"
#include "agent/sessions/client_files.h"
#include "control/model/admin_error.h"
#include "control/protocol/connection_messages.h"
#include "wire/roce/path.h"

namespace verbena::agent {

using control::refuse;

// Returns the error for a link-local address without an interface: EINVAL, with a text that asks for
// sin6_scope_id. REQUIRES: has_known_family(address)
tl::unexpected<control::AdminError> link_local_without_interface(const CmAddress& address);
// Returns the wildcard address of the family, with port 0.
CmAddress wildcard(uint16_t family);

// Sets the link, the GID index, the source GID and the path MTU in id.route. REQUIRES: `place` is the link
// that has the address in id.source
void set_device(CmIdentifier& id, const LinkDirectory::Place& place);

// Returns the path of the identifier's packets, as cm::Manager takes it. Its interface_index is 0 if the
// device is gone. REQUIRES: id.has_device()
roce::Path path_of(const CmIdentifier& id, const LinkDirectory& links);

inline tl::unexpected<control::AdminError> no_room_for_event() {
  return control::refuse(ENOMEM,
                         "too many events wait in all programs: read this program's (rdma_get_cm_event())");
}

inline tl::unexpected<control::AdminError> wrong_state() {
  return refuse(EINVAL, protocol::kCmWrongState);
}

// Results of requests: success with what the reply contains, if anything, or the error for which the request
// is refused. Some results have an event. CmClient sends the event after the reply, so that the program's own
// state is up to date when the event comes.
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

// Describes a method that carries out a request. `Message` is the request's type.
template <class Method>
struct RequestMethod;
template <class Of, class Result, class Request>
struct RequestMethod<Result (Of::*)(CmIdentifier&, const Request&)> {
  using Message = Request;
  static constexpr bool kTakesIdentifier = true, kTakesDescriptor = false;
};
template <class Of, class Result, class Request, class... Descriptor>
struct RequestMethod<Result (Of::*)(const Request&, Descriptor...)> {
  using Message = Request;
  static constexpr bool kTakesIdentifier = false, kTakesDescriptor = sizeof...(Descriptor) == 1;
};

// Carries out a client's requests about event channels, identifiers, addresses, connections and multicast
// groups. Trusts nothing in a request. For the agent's thread.
class ClientRequests {
 public:
  // REQUIRES: the references outlive this object
  ClientRequests(CmService& service, CmClientHost& host, ClientLimits& limits, ClientChannels& channels,
                 ClientIdentifiers& identifiers)
      : service_(service), host_(host), limits_(limits), channels_(channels), identifiers_(identifiers) {}

  Outcome open_channel(const protocol::CmChannelRequest& request, ClientFile events);
  Outcome close_channel(const protocol::CmChannelRequest& request);
  Outcome create(const protocol::CmCreateRequest& request);
  DestroyOutcome destroy(CmIdentifier& id, const protocol::CmIdRequest& request);
  Outcome set_option(CmIdentifier& id, const protocol::CmOptionRequest& request);
  Outcome migrate(CmIdentifier& id, const protocol::CmMigrateRequest& request);

  // address_requests.cc
  RouteOutcome bind(CmIdentifier& id, const protocol::CmBindRequest& request);
  RouteAndEventOutcome resolve_address(CmIdentifier& id, const protocol::CmResolveRequest& request);
  EventOutcome resolve_route(CmIdentifier& id, const protocol::CmIdRequest& request);
  RouteOutcome listen(CmIdentifier& id, const protocol::CmListenRequest& request);

  // connection_requests.cc
  Outcome connect(CmIdentifier& id, const protocol::CmConnectRequest& request);
  Outcome accept(CmIdentifier& id, const protocol::CmConnectRequest& request);
  Outcome reject(CmIdentifier& id, const protocol::CmRejectRequest& request);
  EventOutcome establish(CmIdentifier& id, const protocol::CmIdRequest& request);
  Outcome disconnect(CmIdentifier& id, const protocol::CmIdRequest& request);

  // join() and leave() join and leave a multicast group for the identifier. They change nothing on the
  // network: the process that attaches a QP joins the group on the netdev.
  EventOutcome join(CmIdentifier& id, const protocol::CmJoinRequest& request);
  Outcome leave(CmIdentifier& id, const protocol::CmLeaveRequest& request);

  // Restores an identifier, and its connection, after the client has connected to a new agent.
  RouteOutcome restore(const protocol::CmRestoreRequest& request);

 private:
  // Tells whether a former agent had assigned the port to the identifier (kHeldBefore). This port may have
  // other holders, too, as long as their connections differ (PortSpace::resume()).
  enum class PortIs : uint8_t { kNew, kHeldBefore };
  // Sets the source address, takes its port (0: any ephemeral port), and sets the device if the address
  // belongs to a link. REQUIRES: id.state is kIdle
  Outcome bind_to(CmIdentifier& id, const CmAddress& address, PortIs port = PortIs::kNew);
  // Takes the port in id.source, or an ephemeral port if that is 0. Records the port in the ledger
  // (agent/cm/ledger.h), so that the next agent reserves it for the user. Fails with EACCES for a port below
  // net.ipv4.ip_unprivileged_port_start, unless the user is root.
  Outcome take_port(CmIdentifier& id, PortIs port);
  // Makes the identifier a listener. A backlog of 0 or above 1,024 becomes 1,024. REQUIRES: state kBound
  Outcome start_listening(CmIdentifier& id, uint32_t backlog);
  Outcome check_local(const CmAddress& address) const;
  // Fails with EINVAL if `qpn` exceeds 24 bits, or EPERM if the QP belongs to another user.
  Outcome check_qpn(uint32_t qpn) const;
  cm::Manager& manager() { return service_.manager(); }

  control::AdminResult<RouteAnswer> find_route(CmIdentifier& id, CmAddress destination);
  std::optional<CmAddress> this_host(const CmIdentifier& id) const;
  std::optional<protocol::CmEvent> start_resolving(CmIdentifier& id, const RouteAnswer& route,
                                                   uint32_t timeout_ms);
  protocol::CmEvent finish_resolving(CmIdentifier& id, const RouteAnswer& route, int error);

  Outcome connect_stream(CmIdentifier& id, const protocol::ConnectionParameters& parameters);
  Outcome connect_datagram(CmIdentifier& id, const protocol::ConnectionParameters& parameters);
  Outcome answer_request(CmIdentifier& id, const protocol::CmConnectRequest& request);
  Outcome accept_stream(CmIdentifier& id, const protocol::ConnectionParameters& parameters);
  Outcome accept_datagram(CmIdentifier& id, const protocol::CmConnectRequest& request);
  Result<void> send_rejection(CmIdentifier& id, uint8_t reason, ConstBytes data);

  Outcome restore_state(CmIdentifier& id, const protocol::CmRestoreRequest& request);
  Outcome restore_route(CmIdentifier& id, const protocol::CmRoute& route);
  Outcome restore_connection(CmIdentifier& id, const protocol::CmRestoreRequest& request);

  CmService& service_;
  CmClientHost& host_;
  ClientLimits& limits_;
  ClientChannels& channels_;
  ClientIdentifiers& identifiers_;
};

}  // namespace verbena::agent
