// SPDX-License-Identifier: Apache-2.0
#include "agent/links/netlink_monitor.h"

#include <linux/ethtool.h>
#include <linux/if.h>
#include <linux/if_arp.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include "base/log.h"

namespace verbena::agent {
namespace {

// Maximum number of datagrams per round of the loop: others may cause events faster than they are read.
constexpr int kAtOnce = 64;

constexpr unsigned kGroups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;

// Returns the kind of a netdev (IFLA_INFO_KIND), or of the netdev of which it is a port
// (IFLA_INFO_SLAVE_KIND). Empty if there is none.
std::string_view kind_of(const nlattr* link_info, uint16_t type) {
  if (link_info == nullptr) return {};
  NetlinkAttributes<IFLA_INFO_MAX + 1> info;
  if (mnl_attr_parse_nested(link_info, info.collect, &info) < 0) return {};
  const nlattr* kind = info[type];
  if (kind == nullptr || mnl_attr_validate(kind, MNL_TYPE_STRING) < 0) return {};
  return {mnl_attr_get_str(kind), strnlen(mnl_attr_get_str(kind), mnl_attr_get_payload_len(kind))};
}

// Whether the netdev is a port of a bridge or bond, which has no IP of its own. A member of a VRF has.
bool hides_netdev(const nlattr* link_info) {
  const std::string_view kind = kind_of(link_info, IFLA_INFO_SLAVE_KIND);
  return !kind.empty() && kind != "vrf";
}

// Returns the speed by ethtool(8)'s ioctl. Netlink does not have it, and /sys may be another namespace's.
uint32_t netdev_speed(const std::string& name) {
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ethtool_cmd settings{};
  settings.cmd = ETHTOOL_GSET;
  ifreq request{};
  if (!socket || name.size() >= sizeof request.ifr_name) return 0;
  std::ranges::copy(name, request.ifr_name);
  request.ifr_data = reinterpret_cast<char*>(&settings);
  if (::ioctl(socket.get(), SIOCETHTOOL, &request) != 0) return 0;
  const uint32_t speed = ethtool_cmd_speed(&settings);
  return speed == static_cast<uint32_t>(SPEED_UNKNOWN) ? 0 : speed;
}

void on_netdev(const nlmsghdr* message, LinkTable& table) {
  if (mnl_nlmsg_get_payload_len(message) < sizeof(ifinfomsg)) return;
  const auto* info = static_cast<const ifinfomsg*>(mnl_nlmsg_get_payload(message));
  // AF_BRIDGE messages report bridge ports under the same types.
  if (info->ifi_family != AF_UNSPEC || info->ifi_index <= 0) return;
  const auto index = static_cast<uint32_t>(info->ifi_index);
  if (message->nlmsg_type == RTM_DELLINK) return table.netdev_removed(index);

  NetlinkAttributes<IFLA_MAX + 1> attributes;
  if (mnl_attr_parse(message, sizeof *info, attributes.collect, &attributes) < 0) return;
  const nlattr* name = attributes[IFLA_IFNAME];
  if (name == nullptr || mnl_attr_validate(name, MNL_TYPE_NUL_STRING) < 0) return;
  Netdev netdev;
  netdev.index = index;
  netdev.name = mnl_attr_get_str(name);
  netdev.up = (info->ifi_flags & IFF_UP) != 0;
  netdev.carrier = (info->ifi_flags & IFF_LOWER_UP) != 0;
  netdev.loopback = (info->ifi_flags & IFF_LOOPBACK) != 0;
  netdev.without_neighbours = (info->ifi_flags & (IFF_NOARP | IFF_POINTOPOINT | IFF_LOOPBACK)) != 0;
  netdev.enslaved = attributes[IFLA_MASTER] != nullptr && hides_netdev(attributes[IFLA_LINKINFO]);
  netdev.bond = kind_of(attributes[IFLA_LINKINFO], IFLA_INFO_KIND) == "bond";
  if (const nlattr* mtu = attributes[IFLA_MTU]; mtu != nullptr && mnl_attr_validate(mtu, MNL_TYPE_U32) == 0) {
    netdev.mtu = mnl_attr_get_u32(mtu);
  }
  const nlattr* mac = attributes[IFLA_ADDRESS];
  const bool has_mac = info->ifi_type == ARPHRD_ETHER || info->ifi_type == ARPHRD_LOOPBACK;
  if (has_mac && mac != nullptr && mnl_attr_get_payload_len(mac) == netdev.mac.size()) {
    std::memcpy(netdev.mac.data(), mnl_attr_get_payload(mac), netdev.mac.size());
  }
  netdev.speed = netdev_speed(netdev.name);
  table.netdev_changed(netdev);
}

void on_address(const nlmsghdr* message, LinkTable& table) {
  if (mnl_nlmsg_get_payload_len(message) < sizeof(ifaddrmsg)) return;
  const auto* info = static_cast<const ifaddrmsg*>(mnl_nlmsg_get_payload(message));
  if (info->ifa_family != AF_INET && info->ifa_family != AF_INET6) return;
  NetlinkAttributes<IFA_MAX + 1> attributes;
  if (mnl_attr_parse(message, sizeof *info, attributes.collect, &attributes) < 0) return;

  // IFA_LOCAL, if present, is always the own address. On a point-to-point netdev IFA_ADDRESS is the peer's.
  const nlattr* attribute =
      attributes[IFA_LOCAL] != nullptr ? attributes[IFA_LOCAL] : attributes[IFA_ADDRESS];
  if (attribute == nullptr) return;
  const size_t length = mnl_attr_get_payload_len(attribute);
  const auto* bytes = static_cast<const uint8_t*>(mnl_attr_get_payload(attribute));
  NetdevAddress address;
  address.prefix = info->ifa_prefixlen;
  if (info->ifa_family == AF_INET) {
    if (length != 4) return;
    address.address = roce::Address::from_ipv4(bytes);
  } else {
    if (length != address.address.bytes.size()) return;
    std::copy_n(bytes, length, address.address.bytes.begin());
  }
  if (message->nlmsg_type == RTM_DELADDR) {
    table.address_removed(info->ifa_index, address);
  } else {
    table.address_changed(info->ifa_index, address);
  }
}

int on_message(const nlmsghdr* message, void* table) {
  switch (message->nlmsg_type) {
    case RTM_NEWLINK:
    case RTM_DELLINK:
      on_netdev(message, *static_cast<LinkTable*>(table));
      break;
    case RTM_NEWADDR:
    case RTM_DELADDR:
      on_address(message, *static_cast<LinkTable*>(table));
      break;
    default:
      break;
  }
  return MNL_CB_OK;
}

}  // namespace

Result<void> NetlinkMonitor::start() {
  auto socket = open_route_socket(kGroups);
  if (!socket) return fail(socket.error().code);
  events_ = std::move(*socket);
  return dump();
}

int NetlinkMonitor::fd() const {
  return mnl_socket_get_fd(events_.get());
}

void NetlinkMonitor::receive() {
  for (int i = 0; i < kAtOnce; ++i) {
    alignas(nlmsghdr) char buffer[kNetlinkBufferBytes];
    const ssize_t bytes = ::recv(fd(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0 && errno == ENOBUFS) {
      log_info("netlink events were lost; asking for everything");
      if (const auto dumped = dump(); !dumped)
        log_error("netlink dump failed: errno {}", dumped.error().code);
      continue;
    }
    if (bytes <= 0) return;
    mnl_cb_run(buffer, static_cast<size_t>(bytes), 0, 0, on_message, &table_);
  }
}

Result<void> NetlinkMonitor::dump() {
  if (!queries_) {
    auto socket = open_route_socket(0);
    if (!socket) return fail(socket.error().code);
    queries_ = std::move(*socket);
  }
  table_.begin_dump();
  for (const unsigned type : {RTM_GETLINK, RTM_GETADDR}) {
    // The kernel marks a dump during which something changed (EINTR): request it again.
    Result<void> dumped = fail(EINTR);
    for (int attempt = 0; attempt < 10 && !dumped && dumped.error().code == EINTR; ++attempt) {
      dumped = dump_one(type);
    }
    if (dumped) continue;
    queries_.reset();  // may have the rest of an answer
    return dumped;     // without end_dump(): a stale entry is better than a missing one
  }
  table_.end_dump();
  return {};
}

Result<void> NetlinkMonitor::dump_one(unsigned type) {
  mnl_socket* const socket = queries_.get();
  const unsigned sequence = ++sequence_;
  char request[MNL_NLMSG_HDRLEN + sizeof(rtgenmsg) + MNL_ALIGNTO];
  nlmsghdr* message = mnl_nlmsg_put_header(request);
  message->nlmsg_type = static_cast<uint16_t>(type);
  message->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  message->nlmsg_seq = sequence;
  auto* generic = static_cast<rtgenmsg*>(mnl_nlmsg_put_extra_header(message, sizeof(rtgenmsg)));
  generic->rtgen_family = AF_UNSPEC;
  if (mnl_socket_sendto(socket, message, message->nlmsg_len) < 0) return fail(errno);
  for (;;) {
    alignas(nlmsghdr) char buffer[kNetlinkBufferBytes];
    const ssize_t bytes = mnl_socket_recvfrom(socket, buffer, sizeof buffer);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return fail(errno);
    const int more = mnl_cb_run(buffer, static_cast<size_t>(bytes), sequence, mnl_socket_get_portid(socket),
                                on_message, &table_);
    if (more == MNL_CB_ERROR) return fail(errno);
    if (more == MNL_CB_STOP) return {};
  }
}

}  // namespace verbena::agent
