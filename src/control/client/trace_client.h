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
#include "control/model/admin_error.h"

namespace verbena::control {

// A file for trace::Reader, with the trace rings of one slot of a process or of the process's connections.
// The process runs or has ended.
struct TraceSource {
  pid_t pid = 0;  // 0 if in a pid namespace that the agent does not see
  uid_t uid = 0;
  uint32_t slot = 0;  // for connections, a number that no slot has
  std::string program;
  UniqueFd file;
  size_t offset = 0;  // of the rings in the file

  struct End {
    uint64_t process = 0;  // the same for all slots of one process
    TimePoint time{};
    bool in_order = false;  // whether the process had closed its devices before
  };
  std::optional<End> end{};  // nullopt if the process runs
};

// Makes the requests of `verbena trace` to the agent. Not thread-safe. Waits up to two seconds for each reply
// of the agent (ETIMEDOUT). A user sees its own processes; root and the agent's own user see all.
class TraceClient {
 public:
  static AdminResult<std::unique_ptr<TraceClient>> connect(const ConnectOptions& options = {});

  AdminResult<std::vector<TraceSource>> living();
  // Returns the stored traces of processes that have ended, the latest last. Returns none if the agent is too
  // old to store traces.
  AdminResult<std::vector<TraceSource>> ended();
  // Makes the process trace each request and packet as long as this object exists. ESRCH if there is no such
  // process, or this user may not see it. EOPNOTSUPP if the process's library or the agent is too old.
  AdminResult<void> want_details(pid_t pid);

 private:
  TraceClient(AgentConnection connection, UniqueFd events)
      : connection_(std::move(connection)), events_(std::move(events)) {}

  template <class Request, class Take>
  AdminResult<void> take_all(protocol::MessageType type, const Take& take);

  AgentConnection connection_;
  UniqueFd events_;  // stays open, because the agent ends the session of a client that closes it
};

}  // namespace verbena::control
