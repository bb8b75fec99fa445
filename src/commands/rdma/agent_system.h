// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "control/client/command_client.h"
#include "control/model/agent_status.h"
#include "preload/netlink/service.h"

namespace verbena::commands::rdma {

// The devices that `rdma` shows and changes. iproute2's rdma asks the kernel for them, ours asks the agent.
class System : public rdma_netlink::Devices {
 public:
  using Links = std::vector<control::Link>;

  // Calls `visit` with the current links, and again at least after each change, until `visit` returns false.
  // The links may be the same as before. Goes on with the next agent if the agent ends. Used by `rdma
  // monitor`.
  virtual control::AdminResult<void> watch_links(const std::function<bool(const Links&)>& visit) = 0;
};

// The devices of the agent that serves this user's programs. The first call starts the agent if none runs.
class AgentSystem final : public System {
 public:
  control::AdminResult<control::AgentStatus> status() override;
  control::AdminResult<void> add_link(std::string_view name, std::string_view netdev) override;
  control::AdminResult<void> delete_link(std::string_view name) override;
  control::AdminResult<void> rename_link(std::string_view name, std::string_view new_name) override;
  control::AdminResult<void> watch_links(const std::function<bool(const Links&)>& visit) override;

 private:
  template <class Request>
  auto ask(Request request) -> decltype(request(std::declval<control::Admin&>()));

  std::unique_ptr<control::Admin> admin_;
};

}  // namespace verbena::commands::rdma
