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

// Looks up the addresses of a name for TCP. An empty name stands for all IPv4 addresses of this host, at
// which a server listens. Throws std::runtime_error if the name has no address.
Addresses look_up(const std::string& name, std::uint16_t port);

}  // namespace verbena::perf
