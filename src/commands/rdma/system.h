// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "control/model/agent_status.h"
#include "preload/netlink/devices.h"

namespace verbena::commands::rdma {

// The devices that `rdma` shows and changes. iproute2's rdma asks the kernel, ours the agent.
class System : public rdma_netlink::Devices {
 public:
  using Links = std::vector<control::Link>;

  // Calls `visit` with the current links, and again after each change, until it returns false or the agent
  // ends.
  virtual control::AdminResult<void> watch_links(const std::function<bool(const Links&)>& visit) = 0;
};

}  // namespace verbena::commands::rdma
