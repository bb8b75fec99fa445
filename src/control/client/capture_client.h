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
#include "control/client/agent_dialer.h"
#include "control/model/admin_error.h"
#include "control/model/link.h"
#include "control/protocol/messages.h"

namespace verbena::control {

// What has become of a slot while its packets are captured.
struct CaptureNews {
  protocol::CaptureNewsReply::Kind kind = protocol::CaptureNewsReply::kNothing;
  uint32_t slot = 0;
  pid_t pid = 0;  // 0: in a pid namespace that the agent does not see
  uid_t uid = 0;
  std::string program;
  int error = 0;
  UniqueFd ring;         // with kBegun: see observe/capture/ring_file.h
  UniqueFd status_page;  // likewise: what the process publishes of its QPs
};

// A capture of what processes send each other by memory, as the agent's client. It lasts as long as this. Not
// thread-safe. Every call answers within two seconds.
class CaptureClient {
 public:
  static AdminResult<std::unique_ptr<CaptureClient>> connect(const ConnectOptions& options = {});

  // EPERM: this user may not; EBUSY: somebody captures already; EOPNOTSUPP: an agent of an older version.
  AdminResult<void> start(uint32_t snap_bytes);
  // The next piece of news; kNothing when there is none now.
  AdminResult<CaptureNews> next();
  AdminResult<std::vector<Link>> links();
  uid_t agent_uid() const { return connection_.agent_uid(); }

 private:
  CaptureClient(AgentConnection connection, UniqueFd events)
      : connection_(std::move(connection)), events_(std::move(events)) {}

  AgentConnection connection_;
  UniqueFd events_;  // if we closed it, the agent would take us for gone
};

}  // namespace verbena::control
