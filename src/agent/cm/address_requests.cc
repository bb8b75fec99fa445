// SPDX-License-Identifier: Apache-2.0
// What a client asks about addresses: bind, resolve, listen.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/cm/client.h"
#include "agent/cm/refusals.h"
#include "agent_client/message_socket.h"
#include "agent_client/path_mtu.h"
#include "protocol/text.h"

namespace verbena::agent {
namespace {

// What the kernel's rdma_cm supposes a packet lives over RoCE: 4.096 us * 2^16, a quarter of a second.
constexpr uint8_t kPacketLifeTime = 16;

CmAddress wildcard(uint16_t family) {
  CmAddress address{};
  address.family = family;
  return address;
}

// Whether any netdev has the address.
bool is_of_this_host(const CmAddress& address) {
  const UniqueFd socket(::socket(address.family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 name{};
  socklen_t length = sizeof name;
  if (address.family == AF_INET) {
    auto& ipv4 = reinterpret_cast<sockaddr_in&>(name);
    ipv4.sin_family = AF_INET;
    std::memcpy(&ipv4.sin_addr, address.address, 4);
    length = sizeof ipv4;
  } else {
    name.sin6_family = AF_INET6;
    name.sin6_scope_id = address.scope_id;
    std::memcpy(&name.sin6_addr, address.address, 16);
  }
  return ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&name), length) == 0;
}

uint32_t scope_of(const CmAddress& address) {
  return is_link_local(address) ? address.scope_id : 0;
}

}  // namespace

roce::Path path_of(const CmIdentifier& id, const LinkDirectory& links) {
  roce::Path path;
  std::copy_n(id.route.source_gid, 16, path.source.bytes.begin());
  std::copy_n(id.route.destination_gid, 16, path.destination.bytes.begin());
  const agent_client::Link* link = links.by_device(id.route.device_index);
  path.interface_index = link != nullptr ? link->interface_index : 0;
  path.flow_label = id.route.flow_label;
  path.traffic_class = id.route.traffic_class;
  path.hop_limit = id.route.hop_limit;
  return path;
}

CmClient::Outcome CmClient::check_local(const CmAddress& address) const {
  if (is_link_local(address) && address.scope_id == 0) {
    return refuse(EINVAL, "a link-local address without an interface");
  }
  if (is_any_address(address) || service_.links().find(gid_of(address), scope_of(address))) return {};
  if (is_of_this_host(address)) return refuse(ENODEV, "no RDMA link has this address");
  return refuse(EADDRNOTAVAIL, "no address of this host");
}

// The device whose address the identifier has as its own.
void CmClient::set_device(CmIdentifier& id, const LinkDirectory::Place& place) {
  const agent_client::Link& link = *place.link;
  protocol::store_text(id.route.link, link.name);
  id.route.device_index = link.device_index;
  id.route.gid_index = place.gid_index;
  const roce::Address own = gid_of(id.source);
  std::copy(own.bytes.begin(), own.bytes.end(), id.route.source_gid);
  id.route.path_mtu = agent_client::path_mtu_of(link.mtu);
}

CmClient::Outcome CmClient::take_port(CmIdentifier& id, PortIs port_is) {
  const auto ports = service_.port_space(id.port_space);
  if (!ports) return refuse(ports.error().code, "no such port space");
  const uint16_t port = port_of(id.source);
  Result<void> taken;
  if (port == 0) {
    taken = (*ports)->bind_any(id, service_.port_limits().ephemeral(), service_.random());
  } else if (port < service_.port_limits().first_unprivileged() && host_.user() != 0) {
    return refuse(EACCES, "a privileged port");
  } else {
    taken = port_is == PortIs::kHeldBefore ? (*ports)->resume(id) : (*ports)->bind(id);
  }
  if (!taken) return refuse(taken.error().code, port == 0 ? "no port is free" : "the port is taken");
  id.holds_port = true;
  return {};
}

// REQUIRES: the identifier is idle
CmClient::Outcome CmClient::bind_to(CmIdentifier& id, CmAddress address, PortIs port) {
  if (!has_known_family(address)) return refuse(EAFNOSUPPORT, "neither an IPv4 nor an IPv6 address");
  if (const auto checked = check_local(address); !checked) return checked;
  id.source = address;
  if (!id.family_option_set)
    id.own_family_only = address.family == AF_INET || service_.port_limits().ipv6_only();
  if (const auto taken = take_port(id, port); !taken) {
    id.source = {};
    return taken;
  }
  if (!is_any_address(address)) {
    if (const auto place = service_.links().find(gid_of(address), scope_of(address))) set_device(id, *place);
  }
  id.state = CmState::kBound;
  return {};
}

CmClient::AddressOutcome CmClient::bind(const protocol::CmBindRequest& request) {
  CmIdentifier* id = find(request.id);
  if (id == nullptr) return no_such_identifier();
  if (!has_known_family(request.address)) return refuse(EAFNOSUPPORT, "neither IPv4 nor IPv6");
  if (id->state != CmState::kIdle) return wrong_state();
  if (const auto bound = bind_to(*id, request.address); !bound) return tl::unexpected(bound.error());
  return route_of(*id);
}

CmClient::AddressOutcome CmClient::resolve_address(const protocol::CmResolveRequest& request) {
  CmIdentifier* id = find(request.id);
  if (id == nullptr) return no_such_identifier();
  CmAddress destination = request.destination;
  if (!has_known_family(destination)) return refuse(EAFNOSUPPORT, "neither IPv4 nor IPv6");
  if (!service_.can_resolve()) return refuse(ENETDOWN, "the kernel's routes cannot be asked for");
  const bool is_new = id->state == CmState::kIdle;
  if (!is_new && id->state != CmState::kBound) return wrong_state();
  if (is_new) {
    CmAddress source = has_known_family(request.source) ? request.source : wildcard(destination.family);
    if (source.family != destination.family) return refuse(EINVAL, "addresses of two families");
    id->destination = destination;  // counts when a port is chosen
    if (const auto bound = bind_to(*id, source); !bound) {
      id->destination = {};
      return tl::unexpected(bound.error());
    }
  }
  if (id->source.family != destination.family) return refuse(EINVAL, "addresses of two families");
  if (is_any_address(destination)) {
    const auto own = this_host(*id);
    if (!own) return refuse(ENODEV, "no RDMA link by which this host reaches itself");
    const uint16_t port = destination.port;
    destination = *own;
    destination.port = port;
  }
  const CmAddress source = is_any_address(id->source) ? wildcard(destination.family) : id->source;
  RouteQuestion question{source, destination, 0, id->type_of_service.value_or(0)};
  question.interface_index = destination.family != AF_INET6 ? 0
                             : destination.scope_id != 0    ? destination.scope_id
                             : is_link_local(id->source)    ? id->source.scope_id
                                                            : 0;
  if (is_link_local(destination) && question.interface_index == 0) {
    return refuse(EINVAL, "a link-local address without an interface");
  }
  if (is_link_local(destination)) destination.scope_id = question.interface_index;
  const auto route = service_.routes().ask(question);
  if (!route) return refuse(route.error().code, "no route to this address");
  id->destination = destination;
  start_resolving(*id, *route, request.timeout_ms);
  return route_of(*id);
}

// The address by which an identifier reaches its own host: the one it is bound to, else that of a link.
std::optional<CmAddress> CmClient::this_host(const CmIdentifier& id) const {
  if (!is_any_address(id.source)) return id.source;
  const auto own = service_.links().loopback(id.source.family == AF_INET);
  if (!own) return std::nullopt;
  return address_of(own->address, 0, own->link->interface_index);
}

void CmClient::start_resolving(CmIdentifier& id, const RouteAnswer& route, uint32_t timeout_ms) {
  id.state = CmState::kAddressQuery;
  const auto place = service_.links().find(gid_of(route.source), route.interface_index);
  if (!place) return finish_resolving(id, route, ENODEV);
  if (route.is_local || !has_known_family(route.next_hop)) return finish_resolving(id, route, 0);
  const auto timeout = std::chrono::milliseconds(std::min<uint32_t>(timeout_ms, INT32_MAX));
  id.resolving = service_.neighbours().await(route.interface_index, route.next_hop,
                                             MonotonicClock::now() + timeout, [this, &id, route](int error) {
                                               id.resolving = 0;
                                               finish_resolving(id, route, error);
                                             });
}

// On failure the identifier is bound as before and may try again.
void CmClient::finish_resolving(CmIdentifier& id, const RouteAnswer& route, int error) {
  const auto place = service_.links().find(gid_of(route.source), route.interface_index);
  if (error == 0 && !place) error = ENODEV;
  if (error != 0) {
    id.state = CmState::kBound;
    emit(id, RDMA_CM_EVENT_ADDR_ERROR, -error);
    return;
  }
  const uint16_t port = id.source.port;
  id.source = route.source;
  id.source.port = port;
  set_device(id, *place);
  const roce::Address peer = gid_of(id.destination);
  std::copy(peer.bytes.begin(), peer.bytes.end(), id.route.destination_gid);
  id.route.hop_limit = route.hop_limit;
  complete_route(id);
  id.state = CmState::kAddressResolved;
  emit(id, RDMA_CM_EVENT_ADDR_RESOLVED);
}

// What the kernel's cma_resolve_iboe_route() makes up, RoCE having nobody to ask.
void CmClient::complete_route(CmIdentifier& id) {
  id.route.traffic_class = id.type_of_service.value_or(0);
  id.route.flow_label = (31u * port_of(id.source) + port_of(id.destination)) & 0xfffff;
  // The ACK timeout is twice the packet life time (IBTA volume 1, 12.7.34).
  const uint8_t ack_timeout = id.ack_timeout.value_or(0);
  id.route.packet_life_time = ack_timeout != 0 ? static_cast<uint8_t>(ack_timeout - 1) : kPacketLifeTime;
}

CmClient::Outcome CmClient::resolve_route(const protocol::CmIdRequest& request) {
  CmIdentifier* id = find(request.id);
  if (id == nullptr) return no_such_identifier();
  if (id->state != CmState::kAddressResolved) return wrong_state();
  const agent_client::Link* link = service_.links().by_device(id->route.device_index);
  if (link == nullptr) return refuse(ENODEV, "the device is gone");
  id->route.path_mtu = agent_client::path_mtu_of(link->mtu);
  complete_route(*id);
  id->state = CmState::kRouteResolved;
  emit(*id, RDMA_CM_EVENT_ROUTE_RESOLVED);
  return {};
}

CmClient::AddressOutcome CmClient::listen(const protocol::CmListenRequest& request) {
  CmIdentifier* id = find(request.id);
  if (id == nullptr) return no_such_identifier();
  if (!service_.has_wire()) return refuse(ENETDOWN, service_.no_wire_reason());
  if (id->state == CmState::kIdle) {
    if (const auto bound = bind_to(*id, wildcard(AF_INET)); !bound) return tl::unexpected(bound.error());
  }
  if (id->state != CmState::kBound) return wrong_state();
  if (const auto started = start_listening(*id, request.backlog); !started) {
    return tl::unexpected(started.error());
  }
  return route_of(*id);
}

// REQUIRES: the identifier is bound
CmClient::Outcome CmClient::start_listening(CmIdentifier& id, uint32_t backlog) {
  const auto ports = service_.port_space(id.port_space);
  if (const auto claimed = (*ports)->claim(id); !claimed) {
    return refuse(claimed.error().code, "another has the port");
  }
  const bool as_many = backlog == 0 || backlog > kMaxBacklog;
  id.listening_state = std::make_unique<CmIdentifier::Listening>();
  id.listening_state->backlog = as_many ? kMaxBacklog : backlog;
  id.listening = true;
  id.state = CmState::kListen;
  service_.look_again();
  return {};
}

}  // namespace verbena::agent
