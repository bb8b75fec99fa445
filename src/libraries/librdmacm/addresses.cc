// SPDX-License-Identifier: Apache-2.0
#include "libraries/librdmacm/addresses.h"

#include <cstring>

#include <arpa/inet.h>

#include "base/format.h"

namespace verbena::rdmacm {

socklen_t address_length(const sockaddr* address) {
  if (address == nullptr) return 0;
  if (address->sa_family == AF_INET) return sizeof(sockaddr_in);
  if (address->sa_family == AF_INET6) return sizeof(sockaddr_in6);
  return 0;
}

protocol::CmAddress address_of(const sockaddr* address) {
  protocol::CmAddress result{};
  if (address == nullptr) return result;
  result.family = address->sa_family;
  if (address->sa_family == AF_INET) {
    sockaddr_in in;
    std::memcpy(&in, address, sizeof in);
    result.port = in.sin_port;
    std::memcpy(result.address, &in.sin_addr, sizeof in.sin_addr);
  } else {
    sockaddr_in6 in6;
    std::memcpy(&in6, address, sizeof in6);
    result.port = in6.sin6_port;
    result.scope_id = in6.sin6_scope_id;
    std::memcpy(result.address, &in6.sin6_addr, sizeof in6.sin6_addr);
  }
  return result;
}

void store_address(const protocol::CmAddress& address, sockaddr_storage& to) {
  if (address.family == AF_INET) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = address.port;
    std::memcpy(&in.sin_addr, address.address, sizeof in.sin_addr);
    std::memcpy(&to, &in, sizeof in);
  } else if (address.family == AF_INET6) {
    sockaddr_in6 in6{};
    in6.sin6_family = AF_INET6;
    in6.sin6_port = address.port;
    in6.sin6_scope_id = address.scope_id;
    std::memcpy(&in6.sin6_addr, address.address, sizeof in6.sin6_addr);
    std::memcpy(&to, &in6, sizeof in6);
  }
}

std::string text_of(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  const auto* const any = reinterpret_cast<const sockaddr*>(&address);
  const void* const bytes =
      any->sa_family == AF_INET
          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(any)->sin_addr)
      : any->sa_family == AF_INET6
          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6*>(any)->sin6_addr)
          : nullptr;
  if (bytes == nullptr || ::inet_ntop(any->sa_family, bytes, text, sizeof text) == nullptr) return {};
  return verbena::format("{} port {}", text, ntohs(port_of(any)));
}

in_port_t port_of(const sockaddr* address) {
  return address_length(address) != 0 ? address_of(address).port : 0;
}

}  // namespace verbena::rdmacm
