// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <netinet/in.h>
#include <sys/socket.h>

#include "wire/roce/path.h"

namespace verbena::net {

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
SocketAddress destination_of(const roce::Path& path, uint16_t port);

// Returns the address as a GID. An IPv4 address becomes an IPv4-mapped one (::ffff:a.b.c.d), whether the
// socket is an IPv4 or an IPv6 one.
roce::Address address_of(const SocketAddress& address);
uint16_t port_of(const SocketAddress& address);

}  // namespace verbena::net
