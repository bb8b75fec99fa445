// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include <sys/types.h>

#include "base/unique_fd.h"
#include "commands/perf/exchange.h"
#include "commands/perf/parameters.h"

namespace verbena::perf {

// Serves a client in a child process, which the kernel kills when this process ends. Returns the process ID
// of the child. Throws std::runtime_error if the child cannot be started. `clients_end`: the client's end of
// the connection if this process has it, or -1. The child closes its copy of it. REQUIRES: this process has
// used no device, and has one thread
pid_t serve_in_child(UniqueFd connection, const Parameters& own, int clients_end = -1);

// A server as a child process of this one, at the other end of a socket pair. The kernel kills the server if
// this process ends in any way.
class LocalServer {
 public:
  // Starts the server. Throws, and has requirements, as serve_in_child() does.
  explicit LocalServer(const Parameters& own);
  // Waits a second for the end of the server. Kills the server if it has not ended by then.
  ~LocalServer();
  LocalServer(const LocalServer&) = delete;
  LocalServer& operator=(const LocalServer&) = delete;

  // Returns the channel to the server. Returns null after the first call.
  std::unique_ptr<Channel> take_channel() { return std::move(channel_); }

 private:
  pid_t process_ = 0;
  std::unique_ptr<Channel> channel_;
};

}  // namespace verbena::perf
