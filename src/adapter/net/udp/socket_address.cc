// SPDX-License-Identifier: Apache-2.0
#include "adapter/net/udp/socket_address.h"

namespace verbena::net {

SocketAddress destination_of(const roce::Path& path, uint16_t port) {
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

roce::Address address_of(const SocketAddress& address) {
  if (address.generic.sa_family == AF_INET) {
    return roce::Address::from_ipv4(reinterpret_cast<const uint8_t*>(&address.ipv4.sin_addr));
  }
  roce::Address result;
  std::memcpy(result.bytes.data(), &address.ipv6.sin6_addr, 16);
  return result;
}

uint16_t port_of(const SocketAddress& address) {
  return ntohs(address.generic.sa_family == AF_INET ? address.ipv4.sin_port : address.ipv6.sin6_port);
}

}  // namespace verbena::net
