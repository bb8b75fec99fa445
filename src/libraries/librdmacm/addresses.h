// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <netinet/in.h>
#include <sys/socket.h>

#include "control/protocol/connection_messages.h"

namespace verbena::rdmacm {

// The size of an IPv4 or IPv6 address; 0 for anything else, AF_IB included: RoCE has IP addresses.
socklen_t address_length(const sockaddr* address);

// As the agent has it. REQUIRES: address_length(address) != 0, or a null address, which becomes "none"
protocol::CmAddress address_of(const sockaddr* address);

// As the application has it; leaves `to` alone if there is none.
void store_address(const protocol::CmAddress& address, sockaddr_storage& to);

// In network order; 0: no port.
// "10.0.0.2 port 7471"; empty: it is none.
std::string text_of(const sockaddr_storage& address);

in_port_t port_of(const sockaddr* address);

}  // namespace verbena::rdmacm
