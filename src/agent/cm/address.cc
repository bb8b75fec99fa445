// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/address.h"

#include <algorithm>
#include <cstring>

#include <arpa/inet.h>

namespace verbena::agent {
namespace {

size_t length_of(const CmAddress& address) {
  return address.family == AF_INET ? 4 : 16;
}

}  // namespace

roce::Address gid_of(const CmAddress& address) {
  if (address.family == AF_INET) return roce::Address::from_ipv4(address.address);
  roce::Address gid;
  std::memcpy(gid.bytes.data(), address.address, gid.bytes.size());
  return gid;
}

CmAddress address_of(const roce::Address& gid, uint16_t port, uint32_t scope_id) {
  CmAddress address{};
  set_port(address, port);
  if (gid.is_ipv4()) {
    address.family = AF_INET;
    std::memcpy(address.address, gid.ipv4(), 4);
  } else {
    address.family = AF_INET6;
    std::memcpy(address.address, gid.bytes.data(), gid.bytes.size());
    if (gid.is_link_local()) address.scope_id = scope_id;
  }
  return address;
}

uint16_t port_of(const CmAddress& address) {
  return ntohs(address.port);
}

void set_port(CmAddress& address, uint16_t port) {
  address.port = htons(port);
}

bool is_wildcard(const CmAddress& address) {
  return std::all_of(address.address, address.address + length_of(address),
                     [](uint8_t byte) { return byte == 0; });
}

bool is_loopback(const CmAddress& address) {
  if (address.family == AF_INET) return address.address[0] == 127;
  return address.address[15] == 1 &&
         std::all_of(address.address, address.address + 15, [](uint8_t byte) { return byte == 0; });
}

bool is_any_address(const CmAddress& address) {
  return is_wildcard(address) || is_loopback(address);
}

bool is_link_local(const CmAddress& address) {
  return address.family == AF_INET6 && gid_of(address).is_link_local();
}

bool is_same_host(const CmAddress& a, const CmAddress& b) {
  if (a.family != b.family || std::memcmp(a.address, b.address, length_of(a)) != 0) return false;
  return !is_link_local(a) || a.scope_id == b.scope_id;
}

}  // namespace verbena::agent
