// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "agent_client/admin.h"
#include "tools/rdma/system.h"

namespace verbena::tools::rdma {

// The agent that programs of this user find; started if there is none. Reached when it is first asked.
class AgentSystem final : public System {
 public:
  agent_client::AdminResult<agent_client::AgentStatus> status() override;
  agent_client::AdminResult<void> add_link(std::string_view name, std::string_view netdev) override;
  agent_client::AdminResult<void> delete_link(std::string_view name) override;
  agent_client::AdminResult<void> rename_link(std::string_view name, std::string_view new_name) override;
  agent_client::AdminResult<void> watch_links(const std::function<bool(const Links&)>& visit) override;

 private:
  template <class Request>
  auto ask(Request request) -> decltype(request(std::declval<agent_client::Admin&>()));

  std::unique_ptr<agent_client::Admin> admin_;
};

}  // namespace verbena::tools::rdma
