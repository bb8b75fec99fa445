// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "base/unique_fd.h"
#include "control/client/agent_connection.h"
#include "control/client/agent_dialer.h"
#include "control/model/admin_error.h"
#include "control/model/agent_status.h"
#include "control/protocol/messages.h"
#include "wire/roce/prefix.h"

namespace verbena::control {

// The requests of command-line programs to the agent. Not thread-safe. Every call returns within two seconds.
// Each user whom the agent serves may ask for status; only the agent's own user and root may change links
// (EPERM).
class Admin {
 public:
  static AdminResult<std::unique_ptr<Admin>> connect(const ConnectOptions& options = {});

  // Adds link `name` over `netdev`. If the netdev has an automatic link, that link is renamed instead.
  // EEXIST: the netdev has a link that a user added, or the name is in use.
  AdminResult<void> add_link(std::string_view name, std::string_view netdev);
  // Renames a link; its device stays the same for its users. EEXIST: the name is in use.
  AdminResult<void> rename_link(std::string_view name, std::string_view new_name);
  // Deletes a link. Its netdev gets no automatic link until a link is added to it again.
  AdminResult<void> delete_link(std::string_view name);
  // Makes the link accept packets only from hosts of these networks and from its own host; no networks: from
  // all hosts. ENOSPC: too many.
  AdminResult<void> set_peers(std::string_view name, std::span<const roce::Prefix> peers);
  AdminResult<AgentStatus> status();

 private:
  Admin(AgentConnection connection, UniqueFd events)
      : connection_(std::move(connection)), events_(std::move(events)) {}

  AdminResult<void> change(protocol::MessageType type, std::string_view name, std::string_view netdev);
  AdminResult<void> read_counters(LinkStatus& one);
  AdminResult<void> read_connection_management(AgentStatus& status);
  AdminResult<void> read_slots(AgentStatus& status);
  AdminResult<void> read_cm_ids(AgentStatus& status);

  AgentConnection connection_;
  UniqueFd events_;  // stays open: the agent ends a client that closes it
};

}  // namespace verbena::control
