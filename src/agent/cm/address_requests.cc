// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>

#include <rdma/rdma_cma.h>

#include "agent/cm/client.h"
#include "agent/cm/client_requests.h"
#include "agent/cm/identifier.h"
#include "base/format.h"
#include "control/model/link.h"

namespace verbena::agent {
namespace {

// The kernel's rdma_cm assumes this packet life time over RoCE: 4.096 us * 2^16, a quarter of a second.
constexpr uint8_t kPacketLifeTime = 16;

// Fills in the part of the route that the kernel's cma_resolve_iboe_route() makes up: RoCE has no subnet
// manager to ask.
void complete_route(CmIdentifier& id) {
  id.route.traffic_class = id.type_of_service.value_or(0);
  id.route.flow_label = (31u * port_of(id.source) + port_of(id.destination)) & 0xfffff;
  // The ACK timeout is twice the packet life time (IBTA volume 1, 12.7.34).
  const uint8_t ack_timeout = id.ack_timeout.value_or(0);
  id.route.packet_life_time = ack_timeout != 0 ? static_cast<uint8_t>(ack_timeout - 1) : kPacketLifeTime;
}

}  // namespace

RouteOutcome ClientRequests::bind(CmIdentifier& id, const protocol::CmBindRequest& request) {
  if (!has_known_family(request.address)) return refuse(EAFNOSUPPORT, "neither IPv4 nor IPv6");
  if (id.state != CmState::kIdle) return wrong_state();
  if (const auto bound = bind_to(id, request.address); !bound) return tl::unexpected(bound.error());
  return route_of(id);
}

RouteAndEventOutcome ClientRequests::resolve_address(CmIdentifier& id,
                                                     const protocol::CmResolveRequest& request) {
  const CmAddress& destination = request.destination;
  if (!has_known_family(destination)) return refuse(EAFNOSUPPORT, "neither IPv4 nor IPv6");
  if (!service_.can_resolve()) return refuse(ENETDOWN, "the kernel's routes cannot be asked for");
  const bool is_new = id.state == CmState::kIdle;
  if (!is_new && id.state != CmState::kBound) return wrong_state();
  if (!channels_.has_room_for_event()) return no_room_for_event();
  if (is_new) {
    const CmAddress source = has_known_family(request.source) ? request.source : wildcard(destination.family);
    if (source.family != destination.family) return refuse(EINVAL, "addresses of two families");
    id.destination = destination;  // used to choose a port
    if (const auto bound = bind_to(id, source); !bound) {
      id.destination = {};
      return tl::unexpected(bound.error());
    }
  }
  if (id.source.family != destination.family) return refuse(EINVAL, "addresses of two families");
  const auto route = find_route(id, destination);
  if (!route) return tl::unexpected(route.error());
  const auto event = start_resolving(id, *route, request.timeout_ms);
  return DoneWithRoute{route_of(id), event};
}

// Asks the kernel for the route. On success sets the identifier's destination.
control::AdminResult<RouteAnswer> ClientRequests::find_route(CmIdentifier& id, CmAddress destination) {
  if (is_any_address(destination)) {
    const auto own = this_host(id);
    if (!own) return refuse(ENODEV, "no RDMA link by which this host reaches itself");
    const uint16_t port = destination.port;
    destination = *own;
    destination.port = port;
  }
  const CmAddress source = is_any_address(id.source) ? wildcard(destination.family) : id.source;
  RouteQuestion question{source, destination, 0, id.type_of_service.value_or(0)};
  question.interface_index = destination.family != AF_INET6 ? 0
                             : destination.scope_id != 0    ? destination.scope_id
                             : is_link_local(id.source)     ? id.source.scope_id
                                                            : 0;
  if (is_link_local(destination) && question.interface_index == 0) {
    return link_local_without_interface(destination);
  }
  if (is_link_local(destination)) destination.scope_id = question.interface_index;
  const auto route = service_.routes().ask(question);
  if (!route)
    return refuse(route.error().code, verbena::format("no route to {}", roce::text_of(gid_of(destination))));
  id.destination = destination;
  return *route;
}

// Returns the address by which an identifier reaches its own host: the one to which it is bound, else a
// link's.
std::optional<CmAddress> ClientRequests::this_host(const CmIdentifier& id) const {
  if (!is_any_address(id.source)) return id.source;
  const auto own = service_.links().loopback(id.source.family == AF_INET);
  if (!own) return std::nullopt;
  return address_of(own->address, 0, own->link->interface_index);
}

// Starts to resolve. Returns the final event at once if no neighbour is needed.
std::optional<protocol::CmEvent> ClientRequests::start_resolving(CmIdentifier& id, const RouteAnswer& route,
                                                                 uint32_t timeout_ms) {
  id.state = CmState::kAddressQuery;
  const auto place = service_.links().find(gid_of(route.source), route.interface_index);
  if (!place) return finish_resolving(id, route, ENODEV);
  if (route.is_local || !has_known_family(route.next_hop)) return finish_resolving(id, route, 0);
  const auto timeout = std::chrono::milliseconds(std::min<uint32_t>(timeout_ms, INT32_MAX));
  id.resolving = service_.neighbours().await(id.user, route.interface_index, route.next_hop,
                                             MonotonicClock::now() + timeout, [this, &id, route](int error) {
                                               id.resolving = 0;
                                               id.client->recount(id);
                                               channels_.send(id, finish_resolving(id, route, error));
                                             });
  id.client->recount(id);
  return std::nullopt;
}

// Returns the event with the result. On failure the identifier stays bound and may try again.
protocol::CmEvent ClientRequests::finish_resolving(CmIdentifier& id, const RouteAnswer& route, int error) {
  const auto place = service_.links().find(gid_of(route.source), route.interface_index);
  if (error == 0 && !place) error = ENODEV;
  if (error != 0) {
    id.state = CmState::kBound;
    return event_of(id, manager(), RDMA_CM_EVENT_ADDR_ERROR, -error);
  }
  const uint16_t port = id.source.port;
  id.source = route.source;
  id.source.port = port;
  set_device(id, *place);
  service_.note_port(id);
  const roce::Address peer = gid_of(id.destination);
  std::ranges::copy(peer.bytes, id.route.destination_gid);
  id.route.hop_limit = route.hop_limit;
  complete_route(id);
  id.state = CmState::kAddressResolved;
  return event_of(id, manager(), RDMA_CM_EVENT_ADDR_RESOLVED);
}

EventOutcome ClientRequests::resolve_route(CmIdentifier& id, const protocol::CmIdRequest&) {
  if (id.state != CmState::kAddressResolved) return wrong_state();
  if (!channels_.has_room_for_event()) return no_room_for_event();
  const control::Link* link = service_.links().by_device(id.route.device_index);
  if (link == nullptr) return refuse(ENODEV, "the device is gone");
  id.route.path_mtu = control::path_mtu_of(link->mtu);
  complete_route(id);
  id.state = CmState::kRouteResolved;
  return Done{event_of(id, manager(), RDMA_CM_EVENT_ROUTE_RESOLVED)};
}

RouteOutcome ClientRequests::listen(CmIdentifier& id, const protocol::CmListenRequest& request) {
  if (id.state == CmState::kIdle) {
    if (const auto bound = bind_to(id, wildcard(AF_INET)); !bound) return tl::unexpected(bound.error());
  }
  if (id.state != CmState::kBound) return wrong_state();
  if (const auto started = start_listening(id, request.backlog); !started) {
    return tl::unexpected(started.error());
  }
  return route_of(id);
}

}  // namespace verbena::agent
