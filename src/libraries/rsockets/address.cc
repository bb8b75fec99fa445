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

namespace {

constexpr uint32_t kUdpTag = 0x55555555;

uint8_t version_of(int family) {
  return family == AF_INET ? 4 : 6;
}

void store_address(const Address& from, std::byte* to) {
  if (from.family() == AF_INET) {
    std::memcpy(to, &from.v4().sin_addr, 4);
  } else {
    std::memcpy(to, &from.v6().sin6_addr, 16);
  }
}

Address load_address(const std::byte* from, int family, in_port_t port, uint32_t flow_info = 0) {
  in_addr_t v4;
  in6_addr v6;
  if (family == AF_INET) {
    std::memcpy(&v4, from, 4);
    return Address::ipv4(v4, port);
  }
  std::memcpy(&v6, from, 16);
  return Address::ipv6(v6, port, flow_info);
}

}  // namespace

// Format: version, length, port; then the IPv4 address, or the flow label and the IPv6 address.
size_t DatagramHeader::encode(std::byte* to) const {
  const in_port_t port = source.port();
  to[0] = std::byte{version_of(source.family())};
  to[1] = std::byte(size());
  std::memcpy(to + 2, &port, 2);
  if (source.family() == AF_INET6) std::memcpy(to + 4, &source.v6().sin6_flowinfo, 4);
  store_address(source, to + (source.family() == AF_INET ? 4 : 8));
  return size();
}

Result<DatagramHeader> DatagramHeader::decode(ConstBytes from) {
  if (from.size() < size(AF_INET)) return fail(EPROTO);
  const auto version = std::to_integer<unsigned>(from[0]);
  const auto length = std::to_integer<unsigned>(from[1]);
  in_port_t port;
  std::memcpy(&port, &from[2], 2);
  if (version == 4 && length == size(AF_INET)) return DatagramHeader{load_address(&from[4], AF_INET, port)};
  if (version != 6 || length != size(AF_INET6) || from.size() < length) return fail(EPROTO);
  uint32_t flow_info;
  std::memcpy(&flow_info, &from[4], 4);
  return DatagramHeader{load_address(&from[8], AF_INET6, port, flow_info)};
}

// Format: tag, version, kind, length, a reserved byte, the queue pair number, then the address.
size_t UdpHeader::encode(std::byte* to) const {
  store_be(to, kUdpTag);
  to[4] = std::byte{version_of(source.family())};
  to[5] = static_cast<std::byte>(kind);
  to[6] = std::byte(size());
  to[7] = std::byte{0};
  store_be(to + 8, qpn & 0xffffffu);
  store_address(source, to + 12);
  return size();
}

Result<UdpHeader> UdpHeader::decode(ConstBytes from, int family) {
  UdpHeader header;
  header.source = Address::any(family);
  if (from.size() < header.size() || load_be<uint32_t>(from.data()) != kUdpTag) return fail(EPROTO);
  if (std::to_integer<uint8_t>(from[4]) != version_of(family)) return fail(EPROTO);
  if (std::to_integer<size_t>(from[6]) != header.size()) return fail(EPROTO);
  header.kind = static_cast<Kind>(from[5]);
  if (header.kind != Kind::kData && header.kind != Kind::kControl) return fail(EPROTO);
  header.qpn = load_be<uint32_t>(&from[8]) & 0xffffffu;
  header.source = load_address(&from[12], family, 0);
  return header;
}

}  // namespace verbena::rsockets
