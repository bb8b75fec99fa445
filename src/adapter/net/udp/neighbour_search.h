// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/unique_fd.h"
#include "wire/roce/path.h"

namespace verbena::net {

// Makes the kernel look for a neighbour's hardware address (ARP, neighbour discovery), as it does when
// something is sent there: an empty datagram to the discard port (RFC 863), out of this network device
// whatever the routes say. No privilege is needed.

// A socket to send it by. Empty: errno says why.
UniqueFd open_neighbour_search(bool ipv4);

// 0, or errno: nothing was sent, and the kernel does not look. REQUIRES: the socket is of the neighbour's
// family.
int search_neighbour(int socket, uint32_t interface_index, const roce::Address& neighbour);

}  // namespace verbena::net
