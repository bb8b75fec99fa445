// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <netinet/in.h>
#include <sys/socket.h>

#include "control/protocol/connection_messages.h"

namespace verbena::rdmacm {

// Returns the size of an IPv4 or IPv6 socket address in bytes. Returns 0 for a null address and for other
// families, including AF_IB, because RoCE uses IP addresses.
socklen_t address_length(const sockaddr* address);

// Converts an address to the agent's format. A null address becomes an address of family 0. REQUIRES: address
// == nullptr or address_length(address) != 0
protocol::CmAddress address_of(const sockaddr* address);

// Converts an address to the application's format. Leaves `to` unchanged if `address` has family 0.
void store_address(const protocol::CmAddress& address, sockaddr_storage& to);

// Returns for example "10.0.0.2 port 7471"; an empty text if `address` is neither IPv4 nor IPv6.
std::string text_of(const sockaddr_storage& address);

// Returns the port in network byte order; 0 if `address` is neither IPv4 nor IPv6.
in_port_t port_of(const sockaddr* address);

}  // namespace verbena::rdmacm
