// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/unique_fd.h"
#include "wire/roce/path.h"

namespace verbena::net {

// Opens a socket for the packets of one multicast group. It is bound to the group's address and `port`, has
// joined the group on the interface (IGMP, MLD), and receives nothing else. Each packet to the group reaches
// every such socket of the machine. The membership ends with leave_multicast(), or with the socket's last
// descriptor.
//
// The socket shares the port with those of open_receive_socket(), so the same user must open it. It cannot
// send (EPIPE), since it may be given to another user: a firewall that filters by owner (iptables -m owner)
// would take its packets for those of the user who opened it. REQUIRES: group.is_multicast(), interface_index
// != 0
Result<UniqueFd> open_multicast_socket(const roce::Address& group, uint32_t interface_index, uint16_t port);

// Ends the membership of such a socket, also while other processes have descriptors of it.
void leave_multicast(int fd, const roce::Address& group, uint32_t interface_index);

// Keeps a socket that is bound to no group from receiving packets to groups that other sockets of the machine
// have joined. Linux delivers them by default.
void refuse_multicast(int fd);

}  // namespace verbena::net
