// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.h"

namespace verbena::net {

// Asks the kernel for what a Receiver reads beside the data: the addresses and the segment size (UDP_GRO).
// Harmless when already set.
Result<void> set_receive_options(int fd);

// No process can send by the socket any more, and so from its port. For good: connect(2) does not take it
// back.
void forbid_sending(int fd);

// Asks for the traffic class, hop limit and flow label too, or no longer.
void set_ip_details(int fd, bool wanted);

}  // namespace verbena::net
