// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <sys/socket.h>

#include "commands/rdma_core/common/output.h"
#include "commands/rdma_core/connections/handles.h"

namespace verbena::rdma_core {

// Timeout of rdma_resolve_addr() and rdma_resolve_route(), as in rdma-core's programs.
inline constexpr int kResolveMilliseconds = 2000;

// Calls rdma_getaddrinfo() for one end of a connection. With RAI_PASSIVE in `hints` it finds the address to
// listen on, `source`. Without, it finds those of a connection from `source` to `destination`. Empty strings
// are omitted. Returns 0 or an error for gai_strerror(3), where -1 means that errno has the reason.
int find_addresses(const std::string& source, const std::string& destination, const std::string& port,
                   const rdma_addrinfo& hints, AddressInfo& found);

// Reports an error of find_addresses() as "WHAT: REASON", with a remedy. REQUIRES: errno is that of the call
void tell_lookup_failure(const Output& output, const std::string& what, int error);

// Finds the first address of a host by name or number. Returns 0 or an error for gai_strerror(3).
int find_host(const std::string& name, sockaddr_storage& address);

// Formats an address and its port: "10.0.0.1:7471" or "[fd00::1]:7471". Other families give an empty string.
std::string shown(const sockaddr* address);

// Returns the device and the addresses of an id, and the number of its queue pair, for the JSON object.
nlohmann::ordered_json described(rdma_cm_id* id, const ibv_qp* queue_pair);

// Handles the value of option -f, by its beginning and ignoring case. "ip" makes hosts numeric addresses,
// "gid" makes them GIDs (AF_IB), and "name" changes nothing. Warns of other words.
void take_format(const char* word, rdma_addrinfo& hints);

}  // namespace verbena::rdma_core
