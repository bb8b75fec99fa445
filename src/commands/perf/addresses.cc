// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/addresses.h"

#include <stdexcept>

#include <sys/socket.h>

#include "base/format.h"

namespace verbena::perf {

Addresses look_up(const std::string& name, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_family = name.empty() ? AF_INET : AF_UNSPEC;  // a server listens where perftest's clients connect
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = name.empty() ? AI_PASSIVE : 0;
  addrinfo* found = nullptr;
  const std::string service = std::to_string(port);
  const int code = ::getaddrinfo(name.empty() ? nullptr : name.c_str(), service.c_str(), &hints, &found);
  if (code != 0)
    throw std::runtime_error(verbena::format("cannot find '{}': {}", name, ::gai_strerror(code)));
  return Addresses(found);
}

}  // namespace verbena::perf
