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

// Looks up the addresses of a name, or all of this host's for a server if the name is empty. Throws
// std::runtime_error.
Addresses look_up(const std::string& name, std::uint16_t port);

}  // namespace verbena::perf
