// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/unique_fd.h"
#include "wire/roce/path.h"

namespace verbena::net {

// ---- makes the kernel look for a neighbour's hardware address (ARP, neighbour discovery)

// Opens a socket for search_neighbour(). Returns an empty UniqueFd on failure, with the reason in errno.
UniqueFd open_neighbour_search(bool ipv4);

// Sends an empty datagram to the neighbour's discard port (RFC 863), so that the kernel looks for the
// neighbour's hardware address. The datagram leaves by the network device `interface_index`, whatever the
// routes say. Needs no privilege. Returns 0, or an errno value if the kernel does not look. REQUIRES: the
// socket and the neighbour are of the same address family
int search_neighbour(int socket, uint32_t interface_index, const roce::Address& neighbour);

}  // namespace verbena::net
