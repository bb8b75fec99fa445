// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <netinet/in.h>
#include <sys/socket.h>

#include "control/protocol/connection_messages.h"

namespace verbena::rdmacm {

// Returns the size of an IPv4 or IPv6 address; 0 for other families, including AF_IB, because RoCE uses IP
// addresses.
socklen_t address_length(const sockaddr* address);

// Converts an address to the agent's format. REQUIRES: address_length(address) != 0, or a null address, which
// becomes "none"
protocol::CmAddress address_of(const sockaddr* address);

// Converts an address to the application's format; leaves `to` unchanged if there is none.
void store_address(const protocol::CmAddress& address, sockaddr_storage& to);

// Returns for example "10.0.0.2 port 7471"; empty if there is no address.
std::string text_of(const sockaddr_storage& address);

// Returns the port in network byte order; 0 if there is none.
in_port_t port_of(const sockaddr* address);

}  // namespace verbena::rdmacm
