// SPDX-License-Identifier: Apache-2.0
#include "adapter/net/udp/route_socket.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>

#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/plain_calls.h"

namespace verbena::net {
namespace {

constexpr size_t kIpv4Bytes = 4;
constexpr size_t kIpv6Bytes = 16;

uint8_t family_of(const roce::Address& address) {
  return address.is_ipv4() ? AF_INET : AF_INET6;
}

// The address in the kernel's form: four bytes for IPv4, sixteen for IPv6.
std::span<const uint8_t> bytes_of(const roce::Address& address) {
  const size_t bytes = address.is_ipv4() ? kIpv4Bytes : kIpv6Bytes;
  return std::span(address.bytes).last(bytes);
}

roce::Address address_from(const std::byte* data, size_t bytes) {
  roce::Address address;
  if (bytes == kIpv4Bytes) return roce::Address::from_ipv4(reinterpret_cast<const uint8_t*>(data));
  if (bytes == kIpv6Bytes) std::memcpy(address.bytes.data(), data, bytes);
  return address;
}

// Calls read(type, data, bytes) for each attribute.
template <class Read>
void for_each_attribute(std::span<const std::byte> attributes, const Read& read) {
  while (attributes.size() >= sizeof(rtattr)) {
    rtattr header;
    std::memcpy(&header, attributes.data(), sizeof header);
    if (header.rta_len < sizeof header || header.rta_len > attributes.size()) return;
    read(header.rta_type, attributes.data() + RTA_LENGTH(0), header.rta_len - RTA_LENGTH(0));
    attributes = attributes.subspan(std::min<size_t>(RTA_ALIGN(header.rta_len), attributes.size()));
  }
}

}  // namespace

template <class Body>
struct RouteSocket::Question {
  nlmsghdr header{};
  Body body{};
  alignas(4) std::byte attributes[64]{};
  size_t used = 0;

  void put(uint16_t type, const void* data, size_t bytes) {
    const rtattr attribute{static_cast<uint16_t>(RTA_LENGTH(bytes)), type};
    std::memcpy(attributes + used, &attribute, sizeof attribute);
    std::memcpy(attributes + used + RTA_LENGTH(0), data, bytes);
    used += RTA_SPACE(bytes);
  }
  void put(uint16_t type, const roce::Address& address) {
    const auto bytes = bytes_of(address);
    put(type, bytes.data(), bytes.size());
  }
};

RouteSocket::RouteSocket() : fd_(plain_socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE)) {}

// Sends the question and calls read(body, attributes) with the answer.
template <class Body, class Read>
Result<void> RouteSocket::ask(Question<Body>& question, uint16_t type, const Read& read) {
  question.header.nlmsg_len = static_cast<uint32_t>(NLMSG_LENGTH(sizeof(Body)) + question.used);
  question.header.nlmsg_type = type;
  question.header.nlmsg_flags = NLM_F_REQUEST;
  if (::send(fd_.get(), &question, question.header.nlmsg_len, 0) < 0) return fail(EAGAIN);
  alignas(nlmsghdr) std::byte buffer[8192];
  const ssize_t got = ::recv(fd_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
  if (got < static_cast<ssize_t>(NLMSG_LENGTH(sizeof(Body)))) return fail(EAGAIN);
  nlmsghdr header;
  std::memcpy(&header, buffer, sizeof header);
  if (header.nlmsg_type == NLMSG_ERROR) {
    nlmsgerr error;
    std::memcpy(&error.error, buffer + NLMSG_LENGTH(0), sizeof error.error);
    return fail(error.error != 0 ? -error.error : EAGAIN);
  }
  Body body;
  std::memcpy(&body, buffer + NLMSG_LENGTH(0), sizeof body);
  read(body, std::span<const std::byte>(buffer, static_cast<size_t>(got)).subspan(NLMSG_SPACE(sizeof body)));
  return {};
}

Result<NextHop> RouteSocket::next_hop(const roce::Path& path) {
  Question<rtmsg> question;
  question.body.rtm_family = family_of(path.destination);
  question.body.rtm_dst_len = question.body.rtm_src_len = path.destination.is_ipv4() ? 32 : 128;
  question.put(RTA_DST, path.destination);
  question.put(RTA_SRC, path.source);
  if (path.interface_index != 0) question.put(RTA_OIF, &path.interface_index, sizeof path.interface_index);
  NextHop hop;
  const auto asked = ask(question, RTM_GETROUTE, [&](const rtmsg& route, auto attributes) {
    if (route.rtm_type != RTN_UNICAST) return;
    hop.address = path.destination;
    for_each_attribute(attributes, [&](uint16_t type, const std::byte* data, size_t bytes) {
      if (type == RTA_OIF && bytes == sizeof hop.interface_index) {
        std::memcpy(&hop.interface_index, data, bytes);
      } else if (type == RTA_GATEWAY) {
        hop.address = address_from(data, bytes);
      } else if (type == RTA_VIA && bytes > sizeof(rtvia)) {  // a gateway of the other family (RFC 5549)
        hop.address = address_from(data + sizeof(rtvia), bytes - sizeof(rtvia));
      }
    });
  });
  if (!asked) return tl::unexpected(asked.error());
  return hop;
}

Result<uint16_t> RouteSocket::neighbour_state(const NextHop& neighbour) {
  Question<ndmsg> question;
  question.body.ndm_family = family_of(neighbour.address);
  question.body.ndm_ifindex = static_cast<int32_t>(neighbour.interface_index);
  question.put(NDA_DST, neighbour.address);
  uint16_t state = NUD_NONE;
  const auto asked = ask(question, RTM_GETNEIGH, [&](const ndmsg& entry, auto) { state = entry.ndm_state; });
  if (!asked) return tl::unexpected(asked.error());
  return state;
}

Result<unsigned> RouteSocket::device_flags(uint32_t interface_index) {
  Question<ifinfomsg> question;
  question.body.ifi_index = static_cast<int32_t>(interface_index);
  unsigned flags = 0;
  const auto asked =
      ask(question, RTM_GETLINK, [&](const ifinfomsg& device, auto) { flags = device.ifi_flags; });
  if (!asked) return tl::unexpected(asked.error());
  return flags;
}

}  // namespace verbena::net
