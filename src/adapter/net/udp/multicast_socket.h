// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/unique_fd.h"
#include "wire/roce/path.h"

namespace verbena::net {

// Opens a socket that receives the packets of one multicast group. The socket is bound to the group's address
// and `port`, has joined the group on the interface (IGMP, MLD), and receives nothing else. If several
// sockets have joined the group, each gets every packet. The membership ends with leave_multicast(), or when
// the socket's last descriptor is closed. Errors: those of socket(2), setsockopt(2) and bind(2).
//
// The socket shares the port with the sockets of open_receive_socket(), so the same user must open both. The
// socket cannot send (EPIPE), because it may be passed to a process of another user. A firewall that filters
// by owner (iptables -m owner) would take sent packets for those of the user who opened the socket. REQUIRES:
// group.is_multicast(), interface_index != 0
Result<UniqueFd> open_multicast_socket(const roce::Address& group, uint32_t interface_index, uint16_t port);

// Makes a socket of open_multicast_socket() leave its group, even if other processes have descriptors of the
// socket. Does nothing if the interface is gone.
void leave_multicast(int fd, const roce::Address& group, uint32_t interface_index);

// Makes a socket receive no packets of multicast groups that only other sockets have joined. By default,
// Linux delivers such packets to a socket that is bound to no group.
void refuse_multicast(int fd);

}  // namespace verbena::net
