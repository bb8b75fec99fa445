// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <sys/socket.h>

#include "commands/rdma_core/connections/handles.h"

namespace verbena::rdma_core {

// For rdma_resolve_addr() and rdma_resolve_route(), as the originals have it.
inline constexpr int kResolveMilliseconds = 2000;

// rdma_getaddrinfo() for one end of a connection: with RAI_PASSIVE in the hints for who listens on `source`,
// else for who goes from `source` to `destination`. Empty strings are not given. 0, or what gai_strerror(3)
// knows (-1: errno).
int find_addresses(const std::string& source, const std::string& destination, const std::string& port,
                   const rdma_addrinfo& hints, AddressInfo& found);

// The first address of a host's name. 0, or what gai_strerror(3) knows.
int find_host(const std::string& name, sockaddr_storage& address);

// "10.0.0.1:7471", "[fd00::1]:7471"; empty if it is of another family.
std::string shown(const sockaddr* address);

// An address family as -f of the programs has it: "ip", "gid", or "name", which changes nothing. Anything
// else is warned of.
void take_format(const char* word, rdma_addrinfo& hints);

}  // namespace verbena::rdma_core
