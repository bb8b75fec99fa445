// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include <sys/socket.h>

namespace verbena::commands {

// A client of the metrics server, as the kernel describes it. There are no passwords.
struct MetricsReader {
  // Clients of one source share a limit. It is a user at a Unix socket. Elsewhere it is an address, where a
  // whole network counts as one if a single host may have all of it: 127.0.0.0/8, and 64 bits of IPv6.
  std::string source;
  // Root and our own user at a Unix socket may read what each process does, as by `verbena status`.
  bool sees_processes = false;
};

// Nothing where the client is gone already.
std::optional<MetricsReader> reader_at(int connected_socket);

std::string source_of(const ucred& peer);
std::string source_of(const sockaddr_storage& address);

}  // namespace verbena::commands
