// SPDX-License-Identifier: Apache-2.0
#include "libraries/rsockets/address.h"

#include <algorithm>

namespace verbena::rsockets {
namespace {

std::strong_ordering compare_bytes(const void* a, const void* b, size_t size) {
  return std::memcmp(a, b, size) <=> 0;
}

}  // namespace

Result<Address> Address::from(const sockaddr* address, socklen_t length) {
  if (address == nullptr || length < sizeof address->sa_family) return fail(EINVAL);
  if (address->sa_family == AF_INET && length < sizeof(sockaddr_in)) return fail(EINVAL);
  if (address->sa_family == AF_INET6 && length < sizeof(sockaddr_in6)) return fail(EINVAL);
  if (address->sa_family != AF_INET && address->sa_family != AF_INET6) return fail(EAFNOSUPPORT);
  return from(address);
}

Address Address::from(const sockaddr* address) {
  Address result;
  if (address->sa_family == AF_INET) std::memcpy(&result.storage_.v4, address, sizeof(sockaddr_in));
  if (address->sa_family == AF_INET6) std::memcpy(&result.storage_.v6, address, sizeof(sockaddr_in6));
  return result;
}

Address Address::ipv4(in_addr_t address, in_port_t port) {
  Address result;
  result.storage_.v4.sin_family = AF_INET;
  result.storage_.v4.sin_port = port;
  result.storage_.v4.sin_addr.s_addr = address;
  return result;
}

Address Address::ipv6(const in6_addr& address, in_port_t port, uint32_t flow_info) {
  Address result;
  result.storage_.v6.sin6_family = AF_INET6;
  result.storage_.v6.sin6_port = port;
  result.storage_.v6.sin6_flowinfo = flow_info;
  result.storage_.v6.sin6_addr = address;
  return result;
}

Address Address::any(int family) {
  return family == AF_INET ? ipv4(INADDR_ANY, 0) : ipv6(in6addr_any, 0);
}

socklen_t Address::size() const {
  if (family() == AF_INET) return sizeof(sockaddr_in);
  return family() == AF_INET6 ? sizeof(sockaddr_in6) : 0;
}

bool Address::is_wildcard() const {
  if (family() == AF_INET) return storage_.v4.sin_addr.s_addr == INADDR_ANY;
  return compare_bytes(&storage_.v6.sin6_addr, &in6addr_any, sizeof in6addr_any) == 0;
}

void Address::copy_to(sockaddr* to, socklen_t* length) const {
  if (to != nullptr) std::memcpy(to, &storage_, std::min(*length, size()));
  *length = size();
}

std::strong_ordering operator<=>(const Address& a, const Address& b) {
  if (a.family() != b.family()) return a.family() <=> b.family();
  if (a.family() == AF_INET) {
    const auto order = a.storage_.v4.sin_addr.s_addr <=> b.storage_.v4.sin_addr.s_addr;
    return order != 0 ? order : a.port() <=> b.port();
  }
  const auto order = compare_bytes(&a.storage_.v6.sin6_addr, &b.storage_.v6.sin6_addr, sizeof(in6_addr));
  if (order != 0 || a.family() != AF_INET6) return order;
  if (a.storage_.v6.sin6_scope_id != b.storage_.v6.sin6_scope_id) {
    return a.storage_.v6.sin6_scope_id <=> b.storage_.v6.sin6_scope_id;
  }
  return a.port() <=> b.port();
}

}  // namespace verbena::rsockets
