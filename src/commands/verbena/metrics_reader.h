// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include <sys/socket.h>

namespace verbena::commands {

// A client of the metrics server, identified by the kernel's data on its socket. There are no passwords.
struct MetricsReader {
  // The source to which the client's connection counts (MetricsServer::kMaxOfSource). At a Unix socket, a
  // source is a user. At TCP, a source is an IP address. The whole of 127.0.0.0/8 and each IPv6 /64 count as
  // one address, since one host may own them.
  std::string source;
  // Whether the client sees metrics of single processes, as in `verbena status`. Only root and the agent's
  // own user do, and only at a Unix socket.
  bool sees_processes = false;
};

// Identifies the client at a connected socket. Returns nullopt if the client has disconnected.
std::optional<MetricsReader> reader_at(int connected_socket);

std::string source_of(const ucred& peer);
std::string source_of(const sockaddr_storage& address);

}  // namespace verbena::commands
