// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <sys/socket.h>

#include "control/protocol/connection_messages.h"
#include "wire/roce/path.h"

namespace verbena::agent {

using protocol::CmAddress;

// These functions apply the kernel rdma_cm's rules about socket addresses to the agent protocol's CmAddress.
// They take and return ports in host order; CmAddress::port is in network order. Pure: no system calls.

inline bool has_known_family(const CmAddress& address) {
  return address.family == AF_INET || address.family == AF_INET6;
}

// Returns the IP address as a GID, an IPv4 address in mapped form (::ffff:a.b.c.d). Ignores port and scope
// ID. REQUIRES: has_known_family(address)
roce::Address gid_of(const CmAddress& address);
// Returns the GID as a socket address: AF_INET if the GID is an IPv4-mapped one, otherwise AF_INET6.
// `scope_id`, a netdev's index, is used only for a link-local GID.
CmAddress address_of(const roce::Address& gid, uint16_t port = 0, uint32_t scope_id = 0);

uint16_t port_of(const CmAddress& address);
void set_port(CmAddress& address, uint16_t port);

bool is_wildcard(const CmAddress& address);
bool is_loopback(const CmAddress& address);
// Returns whether the address is the wildcard or a loopback address, neither of which names a device. The
// kernel's rdma_cm treats both alike (cma_any_addr()): an identifier that is bound to 127.0.0.1 is tied to no
// link. libfabric relies on that when it chooses devices.
bool is_any_address(const CmAddress& address);
// Returns whether the address is an IPv6 link-local address, whose scope ID must name a netdev.
bool is_link_local(const CmAddress& address);
// Returns whether both have the same family and IP address. Ignores ports. Link-local addresses with
// different scope IDs are different.
bool is_same_host(const CmAddress& a, const CmAddress& b);

}  // namespace verbena::agent
