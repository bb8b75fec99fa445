// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/unique_fd.h"
#include "wire/roce/path.h"

namespace verbena::net {

// Makes a socket for the packets of one multicast group: bound to the group's address and `port`, joined to
// it (IGMP, MLD) on the interface, and hearing of nothing else. What is sent to the group comes to every such
// socket of the machine. Its membership ends with leave_multicast(), or with the last descriptor of it.
//
// It shares the port with the sockets of open_receive_socket(), so it must be made by the same user. It sends
// nothing (EPIPE), since it may be given to another user: a firewall that goes by owners (iptables -m owner)
// would take what is sent for that of the user who made it.
// REQUIRES: group.is_multicast(), interface_index != 0
Result<UniqueFd> open_multicast_socket(const roce::Address& group, uint32_t interface_index, uint16_t port);

// Ends the membership of such a socket, also while another process has a descriptor of it.
void leave_multicast(int fd, const roce::Address& group, uint32_t interface_index);

// Keeps a socket that is bound to no group from receiving what other sockets of the machine have joined,
// which is Linux's default.
void refuse_multicast(int fd);

}  // namespace verbena::net
