// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <netinet/in.h>
#include <sys/socket.h>

#include "wire/roce/path.h"

namespace verbena::net {

// Our sockets are set to this TTL or hop limit; only a path with another needs to say so packet by packet.
inline constexpr int kDefaultHopLimit = 64;

// Of linux/in6.h, which does not go with netinet/in.h.
inline constexpr int kIpv6Flowinfo = 11;
inline constexpr int kIpv6FlowinfoSend = 33;

// IP_RECVFRAGSIZE, Linux 4.10: says of a datagram that was put together how large its fragments were.
inline constexpr int kIpReceiveFragmentSize = 25;

// An IPv4 or IPv6 socket address, as the kernel takes and gives it.
union SocketAddress {
  sockaddr generic;
  sockaddr_in ipv4;
  sockaddr_in6 ipv6;

  socklen_t length() const { return generic.sa_family == AF_INET ? sizeof ipv4 : sizeof ipv6; }
};

// Where packets of a path go.
SocketAddress destination_of(const roce::Path& path, uint16_t port);

// The address in GID form: an IPv4 address comes out mapped, whichever family the socket has.
roce::Address address_of(const SocketAddress& address);
uint16_t port_of(const SocketAddress& address);

}  // namespace verbena::net
