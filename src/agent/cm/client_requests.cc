// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/client_requests.h"

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "agent/cm/client.h"
#include "base/text.h"

namespace verbena::agent {

namespace {

constexpr uint32_t kMaxBacklog = 1024;  // as the kernel's rdma_ucm

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

constexpr uint8_t kHopLimit = 64;

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

tl::unexpected<control::AdminError> link_local_without_interface(const CmAddress& address) {
  return refuse(EINVAL,
                roce::text_of(gid_of(address)) + " is link-local and needs an interface: set sin6_scope_id");
}

CmAddress wildcard(uint16_t family) {
  CmAddress address{};
  address.family = family;
  return address;
}

void set_device(CmIdentifier& id, const LinkDirectory::Place& place) {
  const control::Link& link = *place.link;
  store_text(id.route.link, link.name);
  id.route.device_index = link.device_index;
  id.route.gid_index = place.gid_index;
  const roce::Address own = gid_of(id.source);
  std::ranges::copy(own.bytes, id.route.source_gid);
  id.route.path_mtu = control::path_mtu_of(link.mtu);
}

roce::Path path_of(const CmIdentifier& id, const LinkDirectory& links) {
  roce::Path path;
  std::copy_n(id.route.source_gid, 16, path.source.bytes.begin());
  std::copy_n(id.route.destination_gid, 16, path.destination.bytes.begin());
  const control::Link* link = links.by_device(id.route.device_index);
  path.interface_index = link != nullptr ? link->interface_index : 0;
  path.flow_label = id.route.flow_label;
  path.traffic_class = id.route.traffic_class;
  path.hop_limit = id.route.hop_limit;
  return path;
}

Outcome ClientRequests::check_local(const CmAddress& address) const {
  if (is_link_local(address) && address.scope_id == 0) {
    return link_local_without_interface(address);
  }
  // find() may return a link over another netdev. If any scope ID were accepted, one port could have any
  // number of listeners.
  const auto place = service_.links().find(gid_of(address), scope_of(address));
  const bool has_link =
      place && (!is_link_local(address) || place->link->interface_index == address.scope_id);
  if (is_any_address(address) || has_link) return {};
  if (is_of_this_host(address)) {
    return refuse(ENODEV,
                  verbena::format("no RDMA link has {}: is its network device up ('ip address'), and has "
                                  "it a link ('verbena link show')?",
                                  roce::text_of(gid_of(address))));
  }
  return refuse(EADDRNOTAVAIL, verbena::format("{} is no address of this host ('ip address' lists them)",
                                               roce::text_of(gid_of(address))));
}

Outcome ClientRequests::take_port(CmIdentifier& id, PortIs port_is) {
  const auto ports = service_.port_space(id.port_space);
  if (!ports) return refuse(ports.error().code, "no such port space");
  const uint16_t port = port_of(id.source);
  const bool had_claim = port != 0 && service_.claims().yield_port(id.port_space, id, host_.user());
  Result<void> taken;
  if (port == 0) {
    taken = (*ports)->bind_any(id, service_.port_limits().ephemeral, service_.random());
  } else if (port < service_.port_limits().first_unprivileged && host_.user() != 0) {
    return refuse(EACCES,
                  verbena::format("port {} is below {} (net.ipv4.ip_unprivileged_port_start), which is for "
                                  "root: take a higher one",
                                  port, service_.port_limits().first_unprivileged));
  } else {
    const PortRange ephemeral = service_.port_limits().ephemeral;
    const auto share = had_claim ? PortSpace::Share::kGranted : PortSpace::Share::kIsAsked;
    taken = port_is == PortIs::kHeldBefore ? (*ports)->resume(id, ephemeral, share)
                                           : (*ports)->bind(id, ephemeral);
  }
  if (!taken) {
    return refuse(taken.error().code,
                  port == 0
                      ? "no port is free (net.ipv4.ip_local_port_range)"
                      : verbena::format("port {} is taken by another rdma_cm_id, of this program or another: "
                                        "take another, or 0 for any",
                                        port));
  }
  id.holds_port = true;
  service_.note_port(id);
  return {};
}

Outcome ClientRequests::bind_to(CmIdentifier& id, const CmAddress& address, PortIs port) {
  if (!has_known_family(address)) return refuse(EAFNOSUPPORT, "neither an IPv4 nor an IPv6 address");
  if (const auto checked = check_local(address); !checked) return checked;
  id.source = address;
  if (!id.family_option_set)
    id.own_family_only = address.family == AF_INET || service_.port_limits().ipv6_only;
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

Outcome ClientRequests::start_listening(CmIdentifier& id, uint32_t backlog) {
  const auto ports = service_.port_space(id.port_space);
  if (const auto listens = (*ports)->listen(id); !listens) {
    return refuse(listens.error().code,
                  verbena::format("another rdma_cm_id, of this program or another, listens on "
                                  "port {} already",
                                  port_of(id.source)));
  }
  const bool as_many = backlog == 0 || backlog > kMaxBacklog;
  id.listening_state = std::make_unique<CmIdentifier::Listening>();
  id.listening_state->backlog = as_many ? kMaxBacklog : backlog;
  id.client->recount(id);
  id.state = CmState::kListen;
  service_.note_port(id);
  service_.listener_began(id);
  return {};
}

Outcome ClientRequests::check_qpn(uint32_t qpn) const {
  if (qpn > 0xffffff) return refuse(EINVAL, "no QP number");
  if (!host_.may_use_qpn(qpn)) return refuse(EPERM, "the QP is another user's");
  return {};
}

Outcome ClientRequests::open_channel(const protocol::CmChannelRequest& request, ClientFile events) {
  return channels_.open(request, std::move(events));
}

// REQUIRES: the channel has no identifiers (CmClient::close_little_by_little() destroys them)
Outcome ClientRequests::close_channel(const protocol::CmChannelRequest& request) {
  if (channels_.find(request.channel) == nullptr) return refuse(ENOENT, "no such channel");
  channels_.close(request.channel);
  return {};
}

Outcome ClientRequests::create(const protocol::CmCreateRequest& request) {
  const auto made = identifiers_.make(request);
  if (!made) return tl::unexpected(made.error());
  return {};
}

DestroyOutcome ClientRequests::destroy(CmIdentifier& id, const protocol::CmIdRequest&) {
  if (EventChannel* channel = channels_.find(id.channel)) {
    id.events_sent -= static_cast<uint32_t>(channel->drop_events(id.number));
  }
  const uint32_t events = id.events_sent;
  if (id.listening) service_.listener_ended(id);
  identifiers_.erase(id);
  return Destroyed{events};
}

Outcome ClientRequests::set_option(CmIdentifier& id, const protocol::CmOptionRequest& request) {
  const bool is_new = id.state == CmState::kIdle;
  switch (request.option) {
    case RDMA_OPTION_ID_TOS:
      if (request.value > 0xff) return refuse(EINVAL, "no type of service");
      id.type_of_service = static_cast<uint8_t>(request.value);
      return {};
    case RDMA_OPTION_ID_REUSEADDR:
      if (!is_new && (request.value == 0 || id.state == CmState::kListen)) return wrong_state();
      id.reuse_address = request.value != 0;
      return {};
    case RDMA_OPTION_ID_AFONLY:
      if (!is_new && id.state != CmState::kBound) return wrong_state();
      id.own_family_only = request.value != 0;
      id.family_option_set = true;
      return {};
    case RDMA_OPTION_ID_ACK_TIMEOUT: {
      const bool has_acks = id.qp_type == IBV_QPT_RC || id.qp_type == IBV_QPT_XRC_SEND;
      if (!has_acks || request.value > 31) return refuse(EINVAL, "no ACK timeout, or not of this QP");
      id.ack_timeout = static_cast<uint8_t>(request.value);
      return {};
    }
    default:
      return refuse(ENOSYS, "no such option");
  }
}

Outcome ClientRequests::migrate(CmIdentifier& id, const protocol::CmMigrateRequest& request) {
  EventChannel* to = channels_.find(request.channel);
  if (to == nullptr) return refuse(ENOENT, "no such channel");
  if (EventChannel* from = channels_.find(id.channel)) {
    from->move_events(id.number, *to);
    --from->identifiers;
  }
  ++to->identifiers;
  id.channel = request.channel;
  if (id.listening_state) id.listening_state->unseen.clear();  // numbers of the other channel
  return {};
}

// RoCE has no subnet administration to ask. The group's MGID is its IP address.
EventOutcome ClientRequests::join(CmIdentifier& id, const protocol::CmJoinRequest& request) {
  if (id.state != CmState::kBound && id.state != CmState::kAddressResolved) return wrong_state();
  if (id.qp_type != IBV_QPT_UD) return refuse(EINVAL, "groups are for RDMA_PS_UDP and RDMA_PS_IPOIB");
  if (!id.has_device()) return refuse(EINVAL, "the identifier has no device: bind it to a link's address");
  if (request.join_flags >= RDMA_MC_JOIN_FLAG_RESERVED) return refuse(EINVAL, "no such way to join");
  if (!has_known_family(request.group)) return refuse(EAFNOSUPPORT, "neither IPv4 nor IPv6");
  const roce::Address group = gid_of(request.group);
  if (!group.is_multicast() || request.group.family != id.source.family) {
    return refuse(EINVAL, verbena::format("{} is no multicast group, or not of the family of {}",
                                          roce::text_of(group), roce::text_of(gid_of(id.source))));
  }
  if (!channels_.has_room_for_event()) return no_room_for_event();
  // After an agent's death, a program may not know whether it has joined already.
  const bool known = std::ranges::find(id.groups, request.multicast) != id.groups.end();
  if (!known) {
    if (!limits_.allows_group(id.groups.size())) return refuse(ENOMEM, "too many groups");
    id.groups.push_back(request.multicast);
    limits_.take_group();
  }

  protocol::CmEvent event = event_of(id, manager(), RDMA_CM_EVENT_MULTICAST_JOIN);
  event.multicast = request.multicast;
  event.flags |= protocol::kCmHasParameters;
  event.parameters.qpn = roce::kMulticastQpn.value();
  event.parameters.qkey = RDMA_UDP_QKEY;
  event.route.destination = request.group;
  std::ranges::copy(group.bytes, event.route.destination_gid);
  event.route.hop_limit = kHopLimit;
  event.route.traffic_class = id.type_of_service.value_or(0);
  return Done{event};
}

Outcome ClientRequests::leave(CmIdentifier& id, const protocol::CmLeaveRequest& request) {
  if (std::erase(id.groups, request.multicast) == 0) return refuse(ENOENT, "no such group");
  limits_.give_back_groups(1);
  return {};
}

RouteOutcome ClientRequests::restore(const protocol::CmRestoreRequest& request) {
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

Outcome ClientRequests::restore_state(CmIdentifier& id, const protocol::CmRestoreRequest& request) {
  id.reuse_address = (request.options & protocol::kCmReuseAddress) != 0;
  id.own_family_only = (request.options & protocol::kCmOwnFamilyOnly) != 0;
  id.family_option_set = (request.options & (protocol::kCmOwnFamilyOnly | protocol::kCmFamilyOptionSet)) != 0;
  if (request.tos != kNoTypeOfService) id.type_of_service = static_cast<uint8_t>(request.tos);
  if (request.state == protocol::kCmIdle) return {};
  if (request.state == protocol::kCmConnected) return restore_connection(id, request);
  const bool resolved = request.state == protocol::kCmResolved;
  if (resolved) id.destination = request.route.destination;
  if (const auto bound = bind_to(id, request.route.source, PortIs::kHeldBefore); !bound) return bound;
  if (request.state == protocol::kCmBound) return {};
  if (resolved) return restore_route(id, request.route);
  return start_listening(id, request.backlog);  // whether there is a wire yet or not
}

Outcome ClientRequests::restore_route(CmIdentifier& id, const protocol::CmRoute& route) {
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
Outcome ClientRequests::restore_connection(CmIdentifier& id, const protocol::CmRestoreRequest& request) {
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
    if (const auto taken = take_port(id, PortIs::kHeldBefore); !taken) return taken;
  }
  id.route = route;
  set_device(id, *place);
  id.state = CmState::kConnect;
  if (id.qp_type == IBV_QPT_UD) return {};

  cm::ConnectionInfo agreed = agreed_in(connection, id, path_of(id, service_.links()));
  agreed.account = host_.user();
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
  service_.connection_returned(id);
  return {};
}

}  // namespace verbena::agent
