// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>

#include <infiniband/verbs.h>

#include "agent/cm/client_role.h"
#include "agent/cm/event_message.h"
#include "agent/cm/refusals.h"

namespace verbena::agent {
namespace {

constexpr uint32_t kNoTypeOfService = ~0u;

// Whether packets can use this route at all.
bool is_route(const protocol::CmRoute& route) {
  if (!has_known_family(route.source) || !has_known_family(route.destination)) return false;
  roce::Address peer;
  std::copy_n(route.destination_gid, peer.bytes.size(), peer.bytes.begin());
  return route.source.family == route.destination.family &&
         gid_of(route.source).is_ipv4() == peer.is_ipv4() && !peer.is_zero();
}

}  // namespace

RouteOutcome RestoreRequests::restore(const protocol::CmRestoreRequest& request) {
  if (request.state > protocol::kCmResolved) return refuse(EINVAL, "no such state");
  const auto made = identifiers_.make(request.create);
  if (!made) return tl::unexpected(made.error());
  CmIdentifier& id = **made;
  const auto restored = restore_state(id, request);
  if (!restored) {
    identifiers_.erase(id);
    return tl::unexpected(restored.error());
  }
  return route_of(id);
}

Outcome RestoreRequests::restore_state(CmIdentifier& id, const protocol::CmRestoreRequest& request) {
  id.reuse_address = (request.options & protocol::kCmReuseAddress) != 0;
  id.own_family_only = (request.options & protocol::kCmOwnFamilyOnly) != 0;
  id.family_option_set = (request.options & (protocol::kCmOwnFamilyOnly | protocol::kCmFamilyOptionSet)) != 0;
  if (request.tos != kNoTypeOfService) id.type_of_service = static_cast<uint8_t>(request.tos);
  if (request.state == protocol::kCmIdle) return {};
  if (request.state == protocol::kCmConnected) return restore_connection(id, request);
  const bool resolved = request.state == protocol::kCmResolved;
  if (resolved) id.destination = request.route.destination;
  if (const auto bound = binding_.bind(id, request.route.source, Binding::PortIs::kHeldBefore); !bound)
    return bound;
  if (request.state == protocol::kCmBound) return {};
  if (resolved) return restore_route(id, request.route);
  return binding_.listen(id, request.backlog);  // whether there is a wire yet or not
}

Outcome RestoreRequests::restore_route(CmIdentifier& id, const protocol::CmRoute& route) {
  const auto place = service_.links().find(gid_of(id.source), id.source.scope_id);
  if (!place || !is_route(route)) return refuse(EINVAL, "no route between these addresses");
  set_device(id, *place);
  const protocol::CmRoute bound = id.route;
  id.route = route;
  std::copy(std::begin(bound.link), std::end(bound.link), id.route.link);
  std::copy(std::begin(bound.source_gid), std::end(bound.source_gid), id.route.source_gid);
  id.route.device_index = bound.device_index;
  id.route.gid_index = bound.gid_index;
  id.route.path_mtu = bound.path_mtu;
  id.state = CmState::kAddressResolved;
  id.may_connect = true;
  return {};
}

// Restores a connection with its communication IDs, so that its peer's messages find it. A passive connection
// has no port of its own; its listener has it.
Outcome RestoreRequests::restore_connection(CmIdentifier& id, const protocol::CmRestoreRequest& request) {
  const protocol::CmRoute& route = request.route;
  const protocol::CmConnection& connection = request.connection;
  if (!is_route(route)) return refuse(EINVAL, "no route between these addresses");
  const auto place = service_.links().find(gid_of(route.source), route.source.scope_id);
  if (!place) return refuse(ENODEV, "no RDMA link has this address");
  if (connection.local_qpn > 0xffffff || !host_.may_use_qpn(connection.local_qpn)) {
    return refuse(EPERM, "the QP is another user's");
  }
  id.source = route.source;
  id.destination = route.destination;
  id.is_active = connection.is_active != 0;
  id.starting_psn = connection.receive_psn & 0xffffff;
  if (id.is_active && port_of(id.source) != 0) {
    if (const auto taken = binding_.take_port(id, Binding::PortIs::kHeldBefore); !taken) return taken;
  }
  id.route = route;
  set_device(id, *place);
  id.state = CmState::kConnect;
  if (id.qp_type == IBV_QPT_UD) return {};

  cm::ConnectionInfo agreed = agreed_in(connection, id, path_of(id, service_.links()));
  const TimePoint now = MonotonicClock::now();
  // Checks the claim: a process that could invent connections could make other users' peers believe that
  // their connections are stale.
  const bool is_awaited = service_.is_orphan(agreed.local_qpn);
  if (!service_.claims().take_connection(agreed, host_.user(), is_awaited, now)) {
    return refuse(EPERM, "the user had no such connection with a former agent");
  }
  const auto taken_up = manager().restore(agreed, reinterpret_cast<uint64_t>(&id), now);
  if (!taken_up) return refuse(taken_up.error().code, "the connection cannot be taken up");
  id.connection = connection.local_id;
  service_.note_connection(id);
  service_.look_again();
  return {};
}

}  // namespace verbena::agent
