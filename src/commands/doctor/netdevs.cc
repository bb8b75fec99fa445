// SPDX-License-Identifier: Apache-2.0
#include "commands/doctor/netdevs.h"

#include <algorithm>

#include <arpa/inet.h>
#include <linux/if.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>

#include "agent/links/netlink_attributes.h"
#include "base/format.h"
#include "commands/doctor/netlink_dump.h"

namespace verbena::commands::doctor {
namespace {

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

}  // namespace

Result<Netdevs> read_netdevs() {
  NetlinkDump kernel(NETLINK_ROUTE);
  Netdevs netdevs;
  auto asked = kernel.ask(RTM_GETLINK, ifinfomsg{}, on_netdev, &netdevs);
  if (asked) asked = kernel.ask(RTM_GETADDR, ifaddrmsg{}, on_address, &netdevs);
  if (!asked) return fail(asked.error().code);
  for (const uint8_t family : {uint8_t{AF_INET}, uint8_t{AF_INET6}}) {
    for (const unsigned flags : {0u, unsigned{RTM_F_CLONED}}) {  // configured; learned from routers
      rtmsg request{};
      request.rtm_family = family;
      request.rtm_flags = flags;
      // Fails without IPv6; then it has no routes.
      static_cast<void>(kernel.ask(RTM_GETROUTE, request, on_route, &netdevs));
    }
  }
  return netdevs;
}

}  // namespace verbena::commands::doctor
