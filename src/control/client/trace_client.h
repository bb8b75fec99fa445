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

// A file that trace::Reader reads: the rings of one slot of a process that runs, or that has ended, or those
// of its connections.
struct TraceSource {
  pid_t pid = 0;  // 0: in a pid namespace that the agent does not see
  uid_t uid = 0;
  uint32_t slot = 0;  // of connections: a number that no slot has
  std::string program;
  UniqueFd file;
  size_t offset = 0;  // of the rings in it

  struct End {
    uint64_t process = 0;  // slots of one process have the same
    TimePoint time{};
    bool in_order = false;  // it had closed its devices
  };
  std::optional<End> end{};  // nothing: it runs
};

// What `verbena trace` asks of the agent. Not thread-safe. Every call answers within two seconds. A user sees
// their own processes; root and the agent's own user see all.
class TraceClient {
 public:
  static AdminResult<std::unique_ptr<TraceClient>> connect(const ConnectOptions& options = {});

  AdminResult<std::vector<TraceSource>> living();
  // Those that have ended, the latest last. None: the agent is of a version that keeps nothing.
  AdminResult<std::vector<TraceSource>> ended();
  // The process writes each request and packet from now on, as long as this lives. ESRCH: there is none that
  // this user may see; EOPNOTSUPP: its library is of a version that does not.
  AdminResult<void> want_details(pid_t pid);

 private:
  TraceClient(AgentConnection connection, UniqueFd events)
      : connection_(std::move(connection)), events_(std::move(events)) {}

  template <class Request, class Take>
  AdminResult<void> take_all(protocol::MessageType type, const Take& take);

  AgentConnection connection_;
  UniqueFd events_;  // if we closed it, the agent would take us for gone
};

}  // namespace verbena::control
