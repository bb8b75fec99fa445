// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "control/model/agent_status.h"
#include "preload/netlink/devices.h"

namespace verbena::commands::rdma {

// The devices that `rdma` shows and changes. iproute2's rdma asks the kernel for them, ours asks the agent.
class System : public rdma_netlink::Devices {
 public:
  using Links = std::vector<control::Link>;

  // Calls `visit` with the current links, and again after each change, until `visit` returns false. Goes on
  // with the next agent if the agent ends. Used by `rdma monitor`.
  virtual control::AdminResult<void> watch_links(const std::function<bool(const Links&)>& visit) = 0;
};

}  // namespace verbena::commands::rdma
