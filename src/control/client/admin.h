// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "base/unique_fd.h"
#include "control/client/agent_connection.h"
#include "control/model/admin_error.h"
#include "control/model/agent_status.h"
#include "control/protocol/messages.h"
#include "wire/roce/prefix.h"

namespace verbena::control {

// Makes the requests of command-line programs to the agent. Not thread-safe. Waits up to two seconds for each
// reply of the agent (ETIMEDOUT). Each user that the agent serves may call status(); only the agent's own
// user and root may change links (EPERM).
class Admin {
 public:
  // Connects to the agent. Starts one if necessary and allowed, which may take longer than two seconds.
  static AdminResult<std::unique_ptr<Admin>> connect(const ConnectOptions& options = {});

  // Adds link `name` over `netdev`. If the netdev has an automatic link, that link is renamed instead. EEXIST
  // if the netdev has a link that a user added, or the name is in use. ENODEV if there is no such netdev.
  AdminResult<void> add_link(std::string_view name, std::string_view netdev);
  // Renames a link. Programs that have its device open can still use it. EEXIST if the new name is in use.
  AdminResult<void> rename_link(std::string_view name, std::string_view new_name);
  // Deletes a link. Its netdev gets no automatic link until a link is added to it again.
  AdminResult<void> delete_link(std::string_view name);
  // Makes the link accept packets only from hosts of these networks and from its own host. An empty list
  // admits all hosts. ENOSPC for more than 20 networks.
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
  UniqueFd events_;  // stays open, because the agent ends the session of a client that closes it
};

}  // namespace verbena::control
