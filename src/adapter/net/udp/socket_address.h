// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <netinet/in.h>
#include <sys/socket.h>

#include "wire/roce/path.h"

namespace verbena::net {

// Buffer size for all control messages of one datagram: packet information, traffic class, hop limit, flow
// label and segment size.
inline constexpr size_t kControlBytes = 192;

// Appends control messages to a buffer for sendmsg(2), behind its first `used` bytes. REQUIRES: the buffer is
// aligned as cmsghdr is, and has room for the messages
class ControlWriter {
 public:
  ControlWriter(std::byte* buffer, size_t used) : buffer_(buffer), used_(used) {}

  template <class T>
  void put(int level, int type, const T& value) {
    cmsghdr header{};
    header.cmsg_len = CMSG_LEN(sizeof value);
    header.cmsg_level = level;
    header.cmsg_type = type;
    std::memcpy(buffer_ + used_, &header, sizeof header);
    std::memcpy(buffer_ + used_ + CMSG_LEN(0), &value, sizeof value);
    used_ += CMSG_SPACE(sizeof value);
  }

  size_t used() const { return used_; }

 private:
  std::byte* buffer_;
  size_t used_;
};

// Returns the value of a received control message. REQUIRES: its level and type are those of a T
template <class T>
T control_value(const cmsghdr* message) {
  T value;
  std::memcpy(&value, CMSG_DATA(message), sizeof value);
  return value;
}

// The TTL or hop limit of send sockets. For packets of a path with another limit, a control message sets the
// limit.
inline constexpr int kDefaultHopLimit = 64;

// Constants of linux/in6.h, which cannot be included beside netinet/in.h.
inline constexpr int kIpv6Flowinfo = 11;
inline constexpr int kIpv6FlowinfoSend = 33;

// IP_RECVFRAGSIZE (Linux 4.10): asks for the fragment size of datagrams that were reassembled.
inline constexpr int kIpReceiveFragmentSize = 25;

// An IPv4 or IPv6 socket address, as the kernel takes and returns it.
union SocketAddress {
  sockaddr generic;
  sockaddr_in ipv4;
  sockaddr_in6 ipv6;

  socklen_t length() const { return generic.sa_family == AF_INET ? sizeof ipv4 : sizeof ipv6; }
};

// Returns the socket address of the path's destination, with this UDP port.
inline SocketAddress destination_of(const roce::Path& path, uint16_t port) {
  SocketAddress result{};
  if (path.destination.is_ipv4()) {
    result.ipv4.sin_family = AF_INET;
    result.ipv4.sin_port = htons(port);
    std::memcpy(&result.ipv4.sin_addr, path.destination.ipv4(), 4);
    return result;
  }
  result.ipv6 = {};
  result.ipv6.sin6_family = AF_INET6;
  result.ipv6.sin6_port = htons(port);
  result.ipv6.sin6_flowinfo = htonl(path.flow_label & 0xfffff);
  std::memcpy(&result.ipv6.sin6_addr, path.destination.bytes.data(), 16);
  if (path.destination.is_link_local() || path.destination.is_multicast()) {
    result.ipv6.sin6_scope_id = path.interface_index;
  }
  return result;
}

// Returns the address as a GID. An IPv4 address becomes an IPv4-mapped one (::ffff:a.b.c.d), whether the
// socket is an IPv4 or an IPv6 one.
inline roce::Address address_of(const SocketAddress& address) {
  if (address.generic.sa_family == AF_INET) {
    return roce::Address::from_ipv4(reinterpret_cast<const uint8_t*>(&address.ipv4.sin_addr));
  }
  roce::Address result;
  std::memcpy(result.bytes.data(), &address.ipv6.sin6_addr, 16);
  return result;
}
inline uint16_t port_of(const SocketAddress& address) {
  return ntohs(address.generic.sa_family == AF_INET ? address.ipv4.sin_port : address.ipv6.sin6_port);
}

}  // namespace verbena::net
