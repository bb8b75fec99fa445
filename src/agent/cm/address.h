// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <sys/socket.h>

#include "control/protocol/connection_messages.h"
#include "wire/roce/path.h"

namespace verbena::agent {

using protocol::CmAddress;

// What the kernel's rdma_cm says of socket addresses, for those of the agent protocol. Ports are in host
// order here. Pure.

inline bool has_known_family(const CmAddress& address) {
  return address.family == AF_INET || address.family == AF_INET6;
}

// The address in the form of a GID. REQUIRES: has_known_family(address)
roce::Address gid_of(const CmAddress& address);
// In the family that the GID says: a mapped one is IPv4's.
CmAddress address_of(const roce::Address& gid, uint16_t port = 0, uint32_t scope_id = 0);

uint16_t port_of(const CmAddress& address);
void set_port(CmAddress& address, uint16_t port);

bool is_wildcard(const CmAddress& address);
bool is_loopback(const CmAddress& address);
// An address that names no device: the wildcard, and loopback. The kernel's rdma_cm takes them for the same
// (cma_any_addr()): an identifier that is bound to 127.0.0.1 is reached by every link, and libfabric chooses
// its devices that way.
bool is_any_address(const CmAddress& address);
// An IPv6 address that says nothing without an interface.
bool is_link_local(const CmAddress& address);
// Ports aside. Link-local addresses of two interfaces are two.
bool is_same_host(const CmAddress& a, const CmAddress& b);

}  // namespace verbena::agent
