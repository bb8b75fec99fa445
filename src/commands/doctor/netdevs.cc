// SPDX-License-Identifier: Apache-2.0
#include "commands/doctor/netdevs.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include <arpa/inet.h>
#include <linux/if.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>

#include "agent/links/netlink_attributes.h"
#include "base/format.h"
#include "commands/doctor/mnl_socket.h"

namespace verbena::commands::doctor {
namespace {

MnlSocket open_socket() {
  MnlSocket socket(mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC));
  if (socket && mnl_socket_bind(socket.get(), 0, MNL_SOCKET_AUTOPID) < 0) socket.reset();
  return socket;
}

int on_netdev(const nlmsghdr* message, void* netdevs) {
  if (message->nlmsg_type != RTM_NEWLINK || mnl_nlmsg_get_payload_len(message) < sizeof(ifinfomsg))
    return MNL_CB_OK;
  const auto* info = static_cast<const ifinfomsg*>(mnl_nlmsg_get_payload(message));
  agent::NetlinkAttributes<IFLA_MAX + 1> attributes;
  if (mnl_attr_parse(message, sizeof *info, attributes.collect, &attributes) < 0) return MNL_CB_OK;
  const nlattr* name = attributes[IFLA_IFNAME];
  if (name == nullptr || mnl_attr_validate(name, MNL_TYPE_NUL_STRING) < 0) return MNL_CB_OK;
  static_cast<Netdevs*>(netdevs)->all.push_back({.index = static_cast<uint32_t>(info->ifi_index),
                                                 .name = mnl_attr_get_str(name),
                                                 .mtu = attributes.number(IFLA_MTU),
                                                 .up = (info->ifi_flags & IFF_UP) != 0,
                                                 .carrier = (info->ifi_flags & IFF_LOWER_UP) != 0,
                                                 .loopback = (info->ifi_flags & IFF_LOOPBACK) != 0,
                                                 .master = attributes.number(IFLA_MASTER)});
  return MNL_CB_OK;
}

std::string destination_of(const rtmsg& route, const nlattr* destination) {
  if (destination == nullptr) return "anywhere";
  const size_t bytes = route.rtm_family == AF_INET ? sizeof(in_addr) : sizeof(in6_addr);
  char text[INET6_ADDRSTRLEN];
  if (mnl_attr_get_payload_len(destination) < bytes ||
      inet_ntop(route.rtm_family, mnl_attr_get_payload(destination), text, sizeof text) == nullptr) {
    return "?";
  }
  return route.rtm_dst_len == bytes * 8 ? std::string(text)
                                        : verbena::format("{}/{}", text, route.rtm_dst_len);
}

int on_route(const nlmsghdr* message, void* netdevs) {
  if (message->nlmsg_type != RTM_NEWROUTE || mnl_nlmsg_get_payload_len(message) < sizeof(rtmsg))
    return MNL_CB_OK;
  const auto* route = static_cast<const rtmsg*>(mnl_nlmsg_get_payload(message));
  agent::NetlinkAttributes<RTA_MAX + 1> attributes;
  if (mnl_attr_parse(message, sizeof *route, attributes.collect, &attributes) < 0) return MNL_CB_OK;
  if (attributes[RTA_METRICS] == nullptr) return MNL_CB_OK;
  agent::NetlinkAttributes<RTAX_MAX + 1> metrics;
  if (mnl_attr_parse_nested(attributes[RTA_METRICS], metrics.collect, &metrics) < 0) return MNL_CB_OK;
  const uint32_t mtu = metrics.number(RTAX_MTU);
  if (mtu == 0) return MNL_CB_OK;
  const NarrowRoute narrow{.netdev = attributes.number(RTA_OIF),
                           .destination = destination_of(*route, attributes[RTA_DST]),
                           .mtu = mtu,
                           .learned = (route->rtm_flags & RTM_F_CLONED) != 0};
  // Configured routes occur in both dumps.
  auto& routes = static_cast<Netdevs*>(netdevs)->narrow_routes;
  if (std::ranges::find(routes, narrow) == routes.end()) routes.push_back(narrow);
  return MNL_CB_OK;
}

int on_address(const nlmsghdr* message, void* netdevs) {
  if (message->nlmsg_type != RTM_NEWADDR || mnl_nlmsg_get_payload_len(message) < sizeof(ifaddrmsg))
    return MNL_CB_OK;
  const auto* info = static_cast<const ifaddrmsg*>(mnl_nlmsg_get_payload(message));
  for (Netdev& one : static_cast<Netdevs*>(netdevs)->all) {
    if (one.index == info->ifa_index) one.has_address = true;
  }
  return MNL_CB_OK;
}

bool receive_dump(mnl_socket* socket, unsigned sequence, mnl_cb_t callback, Netdevs& netdevs) {
  std::array<char, agent::kNetlinkBufferBytes> buffer;
  for (;;) {
    const ssize_t count = mnl_socket_recvfrom(socket, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    const int more = mnl_cb_run(buffer.data(), static_cast<size_t>(count), sequence,
                                mnl_socket_get_portid(socket), callback, &netdevs);
    if (more <= 0) return more == 0;
  }
}

bool dump(mnl_socket* socket, nlmsghdr* request, uint16_t type, unsigned sequence, mnl_cb_t callback,
          Netdevs& netdevs) {
  request->nlmsg_type = type;
  request->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  request->nlmsg_seq = sequence;
  return mnl_socket_sendto(socket, request, request->nlmsg_len) >= 0 &&
         receive_dump(socket, sequence, callback, netdevs);
}

// Dumps routes. `flags`: RTM_F_CLONED for those learned from routers, 0 for configured ones.
bool dump_routes(mnl_socket* socket, unsigned char family, unsigned flags, unsigned sequence,
                 Netdevs& netdevs) {
  alignas(nlmsghdr) std::array<char, 256> room{};
  nlmsghdr* request = mnl_nlmsg_put_header(room.data());
  auto* route = static_cast<rtmsg*>(mnl_nlmsg_put_extra_header(request, sizeof(rtmsg)));
  route->rtm_family = family;
  route->rtm_flags = flags;
  return dump(socket, request, RTM_GETROUTE, sequence, on_route, netdevs);
}

bool dump_netdevs(mnl_socket* socket, unsigned sequence, Netdevs& netdevs) {
  alignas(nlmsghdr) std::array<char, 256> room{};
  nlmsghdr* request = mnl_nlmsg_put_header(room.data());
  mnl_nlmsg_put_extra_header(request, sizeof(ifinfomsg));
  return dump(socket, request, RTM_GETLINK, sequence, on_netdev, netdevs);
}

bool dump_addresses(mnl_socket* socket, unsigned sequence, Netdevs& netdevs) {
  alignas(nlmsghdr) std::array<char, 256> room{};
  nlmsghdr* request = mnl_nlmsg_put_header(room.data());
  mnl_nlmsg_put_extra_header(request, sizeof(ifaddrmsg));
  return dump(socket, request, RTM_GETADDR, sequence, on_address, netdevs);
}

}  // namespace

Result<Netdevs> read_netdevs() {
  const MnlSocket socket = open_socket();
  Netdevs netdevs;
  if (!socket || !dump_netdevs(socket.get(), 1, netdevs) || !dump_addresses(socket.get(), 2, netdevs))
    return fail(errno);
  unsigned sequence = 2;
  for (const auto family : {static_cast<unsigned char>(AF_INET), static_cast<unsigned char>(AF_INET6)}) {
    for (const unsigned flags : {0u, static_cast<unsigned>(RTM_F_CLONED)}) {
      dump_routes(socket.get(), family, flags, ++sequence,
                  netdevs);  // fails without IPv6; then it has no routes
    }
  }
  return netdevs;
}

}  // namespace verbena::commands::doctor
