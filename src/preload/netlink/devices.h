// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "control/model/admin_error.h"
#include "control/model/agent_status.h"

namespace verbena::rdma_netlink {

// The netlink Service lists, adds, deletes and renames devices through this interface. The `rdma` command
// implements it by requests to the agent (commands/rdma/agent_system.h).
class Devices {
 public:
  virtual ~Devices() = default;
  virtual control::AdminResult<control::AgentStatus> status() = 0;
  virtual control::AdminResult<void> add_link(std::string_view name, std::string_view netdev) = 0;
  virtual control::AdminResult<void> delete_link(std::string_view name) = 0;
  virtual control::AdminResult<void> rename_link(std::string_view name, std::string_view new_name) = 0;
};

}  // namespace verbena::rdma_netlink
