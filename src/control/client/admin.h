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

// What the command line asks of the agent. Not thread-safe. Every call answers within two seconds. Each user
// whom the agent serves may ask for status; only the agent's own user and root may change links (EPERM).
class Admin {
 public:
  static AdminResult<std::unique_ptr<Admin>> connect(const ConnectOptions& options = {});

  // Makes link `name` over `netdev`. An automatic link over it takes the new name instead; EEXIST when the
  // netdev has a link that a user added, or the name is in use.
  AdminResult<void> add_link(std::string_view name, std::string_view netdev);
  // The device stays the same to those who use it. EEXIST: the name is in use.
  AdminResult<void> rename_link(std::string_view name, std::string_view new_name);
  // A netdev whose link was deleted gets none by itself until one is added to it again.
  AdminResult<void> delete_link(std::string_view name);
  // The link hears hosts of these networks only, and of its own host; none given: all. ENOSPC: too many.
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
  UniqueFd events_;  // if we closed it, the agent would take us for gone
};

}  // namespace verbena::control
