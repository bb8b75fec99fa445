// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/binding.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include <netinet/in.h>
#include <sys/socket.h>

#include "agent/cm/client.h"
#include "agent/cm/refusals.h"
#include "base/format.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "control/model/port_attributes.h"
#include "wire/roce/prefix.h"

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

}  // namespace

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
  std::copy(own.bytes.begin(), own.bytes.end(), id.route.source_gid);
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

Binding::Outcome Binding::check_local(const CmAddress& address) const {
  if (is_link_local(address) && address.scope_id == 0) {
    return link_local_without_interface(address);
  }
  if (is_any_address(address) || service_.links().find(gid_of(address), scope_of(address))) return {};
  if (is_of_this_host(address)) {
    return refuse(ENODEV,
                  verbena::format("no RDMA link has {}: is its network device up ('ip address'), and has "
                                  "it a link ('verbena link show')?",
                                  roce::text_of(gid_of(address))));
  }
  return refuse(EADDRNOTAVAIL, verbena::format("{} is no address of this host ('ip address' lists them)",
                                               roce::text_of(gid_of(address))));
}

Binding::Outcome Binding::take_port(CmIdentifier& id, PortIs port_is) {
  const auto ports = service_.port_space(id.port_space);
  if (!ports) return refuse(ports.error().code, "no such port space");
  const uint16_t port = port_of(id.source);
  if (port != 0) service_.claims().yield_port(id.port_space, id, user_);
  Result<void> taken;
  if (port == 0) {
    taken = (*ports)->bind_any(id, service_.port_limits().ephemeral(), service_.random());
  } else if (port < service_.port_limits().first_unprivileged() && user_ != 0) {
    return refuse(EACCES,
                  verbena::format("port {} is below {} (net.ipv4.ip_unprivileged_port_start), which is for "
                                  "root: take a higher one",
                                  port, service_.port_limits().first_unprivileged()));
  } else {
    const PortRange ephemeral = service_.port_limits().ephemeral();
    taken = port_is == PortIs::kHeldBefore ? (*ports)->resume(id, ephemeral) : (*ports)->bind(id, ephemeral);
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

Binding::Outcome Binding::bind(CmIdentifier& id, const CmAddress& address, PortIs port) {
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

Binding::Outcome Binding::listen(CmIdentifier& id, uint32_t backlog) {
  const auto ports = service_.port_space(id.port_space);
  if (const auto claimed = (*ports)->claim(id); !claimed) {
    return refuse(claimed.error().code,
                  verbena::format("another rdma_cm_id, of this program or another, listens on "
                                  "port {} already",
                                  port_of(id.source)));
  }
  const bool as_many = backlog == 0 || backlog > kMaxBacklog;
  id.listening_state = std::make_unique<CmIdentifier::Listening>();
  id.listening_state->backlog = as_many ? kMaxBacklog : backlog;
  id.listening = true;
  id.client->recount(id);
  id.state = CmState::kListen;
  service_.note_port(id);
  service_.look_again();
  return {};
}

}  // namespace verbena::agent
