// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <netdb.h>

namespace verbena::perf {

struct FreeAddresses {
  void operator()(addrinfo* all) const { ::freeaddrinfo(all); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

// Returns the addresses of host `name` for TCP, with this port. If `name` is empty, returns the IPv4 wildcard
// address, on which a server listens. Throws std::runtime_error if the name has no address.
Addresses look_up(const std::string& name, std::uint16_t port);

}  // namespace verbena::perf
