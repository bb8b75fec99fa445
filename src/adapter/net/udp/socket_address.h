// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <netinet/in.h>
#include <sys/socket.h>

#include "wire/roce/path.h"

namespace verbena::net {

// The TTL or hop limit of send sockets; packets of a path with another limit carry it in a control message.
inline constexpr int kDefaultHopLimit = 64;

// Constants of linux/in6.h, which cannot be included beside netinet/in.h.
inline constexpr int kIpv6Flowinfo = 11;
inline constexpr int kIpv6FlowinfoSend = 33;

// IP_RECVFRAGSIZE, Linux 4.10: the fragment size of a datagram that was reassembled.
inline constexpr int kIpReceiveFragmentSize = 25;

// An IPv4 or IPv6 socket address, as the kernel takes and returns it.
union SocketAddress {
  sockaddr generic;
  sockaddr_in ipv4;
  sockaddr_in6 ipv6;

  socklen_t length() const { return generic.sa_family == AF_INET ? sizeof ipv4 : sizeof ipv6; }
};

// The socket address of the path's destination.
SocketAddress destination_of(const roce::Path& path, uint16_t port);

// The address in GID form: an IPv4 address is returned mapped, whichever family the socket has.
roce::Address address_of(const SocketAddress& address);
uint16_t port_of(const SocketAddress& address);

}  // namespace verbena::net
