// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "base/unique_fd.h"
#include "control/client/agent_connection.h"
#include "control/model/admin_error.h"
#include "control/model/link.h"
#include "control/protocol/messages.h"

namespace verbena::control {

// A change in the capture of one slot.
struct CaptureNews {
  protocol::CaptureNewsReply::Kind kind = protocol::CaptureNewsReply::kNothing;
  uint32_t slot = 0;
  pid_t pid = 0;  // 0 if in a pid namespace that the agent does not see
  uid_t uid = 0;
  std::string program;
  int error = 0;
  UniqueFd ring;         // only with kBegun; see observe/capture/ring_file.h
  UniqueFd status_page;  // only with kBegun; has the numbers that the process publishes about its QPs
};

// Captures packets that processes send each other by shared memory, as a client of the agent. The capture
// lasts as long as this object. Not thread-safe. Waits up to two seconds for each reply of the agent
// (ETIMEDOUT), and longer in connect() if an agent has to start.
class CaptureClient {
 public:
  static AdminResult<std::unique_ptr<CaptureClient>> connect(const ConnectOptions& options = {});

  // Starts the capture of up to `snap_bytes` of each packet's payload. EPERM if this user may not capture,
  // EBUSY if another session captures, EOPNOTSUPP if the agent is too old.
  AdminResult<void> start(uint32_t snap_bytes);
  // Returns the next change, or one of kind kNothing if there is none now.
  AdminResult<CaptureNews> next();
  AdminResult<std::vector<Link>> links();
  uid_t agent_uid() const { return connection_.agent_uid(); }

 private:
  CaptureClient(AgentConnection connection, UniqueFd events)
      : connection_(std::move(connection)), events_(std::move(events)) {}

  AgentConnection connection_;
  UniqueFd events_;  // stays open, because the agent ends the session of a client that closes it
};

}  // namespace verbena::control
