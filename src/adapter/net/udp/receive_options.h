// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.h"

namespace verbena::net {

// Asks the kernel for the information that a Receiver needs besides the data: addresses and segment size
// (UDP_GRO). Harmless when already set.
Result<void> set_receive_options(int fd);

// Makes the socket unable to send, for all processes and for good: connect(2) does not undo it. So nothing
// can be sent from its port by it.
void forbid_sending(int fd);

// Starts or stops asking the kernel for the traffic class, hop limit and flow label, too.
void set_ip_details(int fd, bool wanted);

}  // namespace verbena::net
