// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <netinet/in.h>
#include <sys/socket.h>

#include "base/result.h"
#include "libraries/librdmacm/identifier.h"

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

// All our devices have one port and one partition.
inline constexpr uint8_t kPort = 1;
inline constexpr uint16_t kDefaultPartition = 0xffff;

// Stores the agent's data about addresses and device in the rdma_cm_id: `route.addr` and, once the device is
// known, `verbs`, `pd` and `port_num`. Errors: ENODEV if libibverbs does not know the device; those of
// opening it.
Result<void> set_path(Identifier& identifier, const protocol::CmRoute& path);

// Fills rdma_cm_id::route.path_rec from the stored path, as the kernel does for a RoCE path. Errors: ENOMEM.
Result<void> set_path_record(Identifier& identifier);

// Returns the address handle attributes of a path.
ibv_ah_attr address_handle_of(const protocol::CmRoute& path);

}  // namespace verbena::rdmacm
