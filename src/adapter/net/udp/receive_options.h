// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.h"

namespace verbena::net {

// Asks the kernel for the information that a Receiver needs with each datagram: the addresses and the segment
// size (UDP_GRO). Calling this again has no effect.
Result<void> set_receive_options(int fd);

// Makes the socket unable to send, permanently and for all processes that have its descriptor; connect(2)
// does not undo this. So nobody can use the socket to send from its port.
void forbid_sending(int fd);

// Sets whether the kernel also reports the traffic class, hop limit and flow label of each datagram.
void set_ip_details(int fd, bool wanted);

}  // namespace verbena::net
