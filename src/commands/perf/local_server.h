// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include <sys/types.h>

#include "base/unique_fd.h"
#include "commands/perf/exchange.h"
#include "commands/perf/parameters.h"

namespace verbena::perf {

// Serves a client in a new process, which the kernel ends when this one ends. Returns its number. Throws
// std::runtime_error if it cannot be started. `clients_end`: the other end of the
// connection if this process has it, or -1. REQUIRES: this process has used no device, and has one thread
pid_t serve_in_child(UniqueFd connection, const Parameters& own, int clients_end = -1);

// A server as a child process of this one, at the other end of a socket pair. The kernel ends it if this
// process ends in any way.
class LocalServer {
 public:
  // Starts it, as serve_in_child().
  explicit LocalServer(const Parameters& own);
  // Ends it, if it has not ended already.
  ~LocalServer();
  LocalServer(const LocalServer&) = delete;
  LocalServer& operator=(const LocalServer&) = delete;

  // The channel to it. Can be taken once.
  std::unique_ptr<Channel> take_channel() { return std::move(channel_); }

 private:
  pid_t process_ = 0;
  std::unique_ptr<Channel> channel_;
};

}  // namespace verbena::perf
