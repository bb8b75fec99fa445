// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "agent_client/admin_error.h"
#include "agent_client/agent_status.h"

namespace verbena::tools::rdma {

// What `rdma` shows and changes: where iproute2's asks the kernel, ours asks the agent.
class System {
 public:
  using Links = std::vector<agent_client::Link>;

  virtual ~System() = default;
  virtual agent_client::AdminResult<agent_client::AgentStatus> status() = 0;
  virtual agent_client::AdminResult<void> add_link(std::string_view name, std::string_view netdev) = 0;
  virtual agent_client::AdminResult<void> delete_link(std::string_view name) = 0;
  virtual agent_client::AdminResult<void> rename_link(std::string_view name, std::string_view new_name) = 0;
  // Calls `visit` with the links there are, and again whenever they have changed, until it answers false or
  // there is nobody left to ask.
  virtual agent_client::AdminResult<void> watch_links(const std::function<bool(const Links&)>& visit) = 0;
};

}  // namespace verbena::tools::rdma
