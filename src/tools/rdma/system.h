// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "agent_client/agent_status.h"
#include "rdma_netlink/devices.h"

namespace verbena::tools::rdma {

// What `rdma` shows and changes: where iproute2's asks the kernel, ours asks the agent.
class System : public rdma_netlink::Devices {
 public:
  using Links = std::vector<agent_client::Link>;

  // Calls `visit` with the links there are, and again whenever they have changed, until it answers false or
  // there is nobody left to ask.
  virtual agent_client::AdminResult<void> watch_links(const std::function<bool(const Links&)>& visit) = 0;
};

}  // namespace verbena::tools::rdma
