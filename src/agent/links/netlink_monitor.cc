// SPDX-License-Identifier: Apache-2.0
#include "agent/links/netlink_monitor.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include <linux/if.h>
#include <linux/if_arp.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>
#include <unistd.h>

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
  // The wireless extensions announce scans by messages of this type, with nothing but IFLA_WIRELESS.
  const nlattr* mtu = attributes[IFLA_MTU];
  if (mtu == nullptr || mnl_attr_validate(mtu, MNL_TYPE_U32) < 0) return;
  Netdev netdev;
  netdev.index = index;
  netdev.name = mnl_attr_get_str(name);
  netdev.up = (info->ifi_flags & IFF_UP) != 0;
  netdev.carrier = (info->ifi_flags & IFF_LOWER_UP) != 0;
  netdev.loopback = (info->ifi_flags & IFF_LOOPBACK) != 0;
  netdev.without_neighbours = (info->ifi_flags & (IFF_NOARP | IFF_POINTOPOINT | IFF_LOOPBACK)) != 0;
  netdev.enslaved = attributes[IFLA_MASTER] != nullptr && hides_netdev(attributes[IFLA_LINKINFO]);
  netdev.bond = kind_of(attributes[IFLA_LINKINFO], IFLA_INFO_KIND) == "bond";
  netdev.mtu = mnl_attr_get_u32(mtu);
  const nlattr* mac = attributes[IFLA_ADDRESS];
  const bool has_mac = info->ifi_type == ARPHRD_ETHER || info->ifi_type == ARPHRD_LOOPBACK;
  if (has_mac && mac != nullptr && mnl_attr_get_payload_len(mac) == netdev.mac.size()) {
    std::memcpy(netdev.mac.data(), mnl_attr_get_payload(mac), netdev.mac.size());
  }
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

void report(const char* messages, size_t bytes, LinkTable& table) {
  mnl_cb_run(messages, bytes, 0, 0, on_message, &table);
}

void append(std::vector<char>& messages, const void* more, size_t bytes) {
  const auto* first = static_cast<const char*>(more);
  messages.insert(messages.end(), first, first + bytes);
  messages.resize(NLMSG_ALIGN(messages.size()));
}

int on_dumped_message(const nlmsghdr* message, void* messages) {
  append(*static_cast<std::vector<char>*>(messages), message, message->nlmsg_len);
  return MNL_CB_OK;
}

// Appends all netdevs (RTM_GETLINK) or addresses (RTM_GETADDR). EINTR if something changed meanwhile. Each
// call opens a socket, because after an error the old one may have the rest of an answer.
Result<void> dump_one(unsigned type, std::vector<char>& messages) {
  constexpr unsigned kSequence = 1;
  auto opened = open_route_socket(0);
  if (!opened) return fail(opened.error().code);
  mnl_socket* const socket = opened->get();
  char request[MNL_NLMSG_HDRLEN + sizeof(rtgenmsg) + MNL_ALIGNTO];
  nlmsghdr* message = mnl_nlmsg_put_header(request);
  message->nlmsg_type = static_cast<uint16_t>(type);
  message->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  message->nlmsg_seq = kSequence;
  auto* generic = static_cast<rtgenmsg*>(mnl_nlmsg_put_extra_header(message, sizeof(rtgenmsg)));
  generic->rtgen_family = AF_UNSPEC;
  if (mnl_socket_sendto(socket, message, message->nlmsg_len) < 0) return fail(errno);
  for (;;) {
    alignas(nlmsghdr) char buffer[kNetlinkBufferBytes];
    const ssize_t bytes = mnl_socket_recvfrom(socket, buffer, sizeof buffer);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return fail(errno);
    const int more = mnl_cb_run(buffer, static_cast<size_t>(bytes), kSequence, mnl_socket_get_portid(socket),
                                on_dumped_message, &messages);
    if (more == MNL_CB_ERROR) return fail(errno);
    if (more == MNL_CB_STOP) return {};
  }
}

}  // namespace

Result<void> NetlinkMonitor::start() {
  auto socket = open_route_socket(kGroups);
  if (!socket) return fail(socket.error().code);
  events_ = std::move(*socket);
  const auto dumped = dump();
  if (!dumped) return fail(dumped.error().code);
  report_dump(*dumped);
  return {};
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
      is_stale_ = true;
      continue;
    }
    if (bytes <= 0) break;
    keep(buffer, static_cast<size_t>(bytes));
    report(buffer, static_cast<size_t>(bytes), table_);
  }
  consider_dump();
}

void NetlinkMonitor::keep(const char* events, size_t bytes) {
  if (!is_dumping_) return;
  if (since_dump_.size() + NLMSG_ALIGN(bytes) <= kKeptBytes) {
    append(since_dump_, events, bytes);
  } else {
    is_stale_ = true;
  }
}

// Any thread.
Result<NetlinkMonitor::Messages> NetlinkMonitor::dump() {
  Messages messages;
  for (const unsigned type : {RTM_GETLINK, RTM_GETADDR}) {
    const size_t before = messages.size();
    // The kernel marks a dump during which something changed (EINTR): request it again.
    Result<void> dumped = fail(EINTR);
    for (int attempt = 0; attempt < 10 && !dumped && dumped.error().code == EINTR; ++attempt) {
      messages.resize(before);
      dumped = dump_one(type, messages);
    }
    if (!dumped) return fail(dumped.error().code);
  }
  return messages;
}

void NetlinkMonitor::consider_dump() {
  if (is_stale_ && !is_dumping_) next_dump_.arm(std::max(MonotonicClock::now(), earliest_dump_));
}

void NetlinkMonitor::begin_dump() {
  if (is_dumping_) return;
  log_info("netlink events were lost; asking for everything");
  since_dump_.clear();
  since_dump_.reserve(kKeptBytes);  // keep() needs no memory
  const auto dumped = std::make_shared<Result<Messages>>(fail(ENOMEM));
  closer_.work_for(
      ::geteuid(), [dumped] { *dumped = dump(); }, [this, dumped] { end_dump(*dumped); });
  is_dumping_ = true;
  is_stale_ = false;
  earliest_dump_ = MonotonicClock::now() + kDumpInterval;
}

// A stale entry is better than a missing one, so a dump that failed changes nothing.
void NetlinkMonitor::end_dump(const Result<Messages>& dumped) {
  is_dumping_ = false;
  const bool is_stale = std::exchange(is_stale_, true);
  if (dumped) {
    report_dump(*dumped);
    is_stale_ = is_stale;
    changed_();
  } else {
    log_error("netlink dump failed: errno {}", dumped.error().code);
  }
  consider_dump();
}

void NetlinkMonitor::report_dump(const Messages& dumped) {
  table_.begin_dump();
  report(dumped.data(), dumped.size(), table_);
  report(since_dump_.data(), since_dump_.size(), table_);
  table_.end_dump();
}

}  // namespace verbena::agent
