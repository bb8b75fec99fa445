// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <sys/socket.h>

#include "control/protocol/connection_messages.h"
#include "wire/roce/path.h"

namespace verbena::agent {

using protocol::CmAddress;

// The rules of the kernel's rdma_cm about socket addresses, for addresses of the agent protocol. Ports are in
// host order here. Pure.

inline bool has_known_family(const CmAddress& address) {
  return address.family == AF_INET || address.family == AF_INET6;
}

// Returns the address in the form of a GID. REQUIRES: has_known_family(address)
roce::Address gid_of(const CmAddress& address);
// Returns the address in the GID's family: a mapped GID becomes an IPv4 address.
CmAddress address_of(const roce::Address& gid, uint16_t port = 0, uint32_t scope_id = 0);

uint16_t port_of(const CmAddress& address);
void set_port(CmAddress& address, uint16_t port);

bool is_wildcard(const CmAddress& address);
bool is_loopback(const CmAddress& address);
// Whether the address names no device: the wildcard or loopback. The kernel's rdma_cm treats both alike
// (cma_any_addr()): an identifier that is bound to 127.0.0.1 is reached by every link, and libfabric chooses
// its devices by that.
bool is_any_address(const CmAddress& address);
// Whether it is an IPv6 address that needs an interface.
bool is_link_local(const CmAddress& address);
// Ignores ports. Link-local addresses with different interfaces are different.
bool is_same_host(const CmAddress& a, const CmAddress& b);

}  // namespace verbena::agent
