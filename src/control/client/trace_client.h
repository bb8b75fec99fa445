// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "base/time.h"
#include "base/unique_fd.h"
#include "control/client/agent_connection.h"
#include "control/client/agent_dialer.h"
#include "control/model/admin_error.h"

namespace verbena::control {

// A file for trace::Reader. It has the rings of one slot of a process, which runs or has ended, or the rings
// of the process's connections.
struct TraceSource {
  pid_t pid = 0;  // 0: in a pid namespace that the agent does not see
  uid_t uid = 0;
  uint32_t slot = 0;  // for connections: a number that no slot has
  std::string program;
  UniqueFd file;
  size_t offset = 0;  // of the rings in the file

  struct End {
    uint64_t process = 0;  // the same for all slots of one process
    TimePoint time{};
    bool in_order = false;  // whether it had closed its devices
  };
  std::optional<End> end{};  // nothing: the process runs
};

// The requests of `verbena trace` to the agent. Not thread-safe. Every call returns within two seconds. A
// user sees their own processes; root and the agent's own user see all.
class TraceClient {
 public:
  static AdminResult<std::unique_ptr<TraceClient>> connect(const ConnectOptions& options = {});

  AdminResult<std::vector<TraceSource>> living();
  // The traces of processes that have ended, the latest last; empty if the agent is too old to keep any.
  AdminResult<std::vector<TraceSource>> ended();
  // Makes the process trace each request and packet for as long as this object lives. ESRCH: there is no such
  // process, or this user may not see it; EOPNOTSUPP: its library is too old.
  AdminResult<void> want_details(pid_t pid);

 private:
  TraceClient(AgentConnection connection, UniqueFd events)
      : connection_(std::move(connection)), events_(std::move(events)) {}

  template <class Request, class Take>
  AdminResult<void> take_all(protocol::MessageType type, const Take& take);

  AgentConnection connection_;
  UniqueFd events_;  // stays open: the agent ends a client that closes it
};

}  // namespace verbena::control
