// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include <sys/socket.h>

namespace verbena::commands {

// A client of the metrics server, identified by the kernel's data on its socket. There are no passwords.
struct MetricsReader {
  // The unit for connection limits. At a Unix socket: the user. At TCP: the IP address, where a network that
  // one host may own counts as one address (127.0.0.0/8, an IPv6 /64).
  std::string source;
  // Whether metrics of single processes are shown, as `verbena status` shows them: only to root and the
  // agent's own user at a Unix socket.
  bool sees_processes = false;
};

// Identifies the client at a connected socket; nullopt if it has disconnected.
std::optional<MetricsReader> reader_at(int connected_socket);

std::string source_of(const ucred& peer);
std::string source_of(const sockaddr_storage& address);

}  // namespace verbena::commands
