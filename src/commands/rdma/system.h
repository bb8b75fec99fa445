// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "control/model/agent_status.h"
#include "preload/netlink/devices.h"

namespace verbena::commands::rdma {

// What `rdma` shows and changes: where iproute2's asks the kernel, ours asks the agent.
class System : public rdma_netlink::Devices {
 public:
  using Links = std::vector<control::Link>;

  // Calls `visit` with the links there are, and again whenever they have changed, until it answers false or
  // there is nobody left to ask.
  virtual control::AdminResult<void> watch_links(const std::function<bool(const Links&)>& visit) = 0;
};

}  // namespace verbena::commands::rdma
