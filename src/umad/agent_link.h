// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "agent_client/agent_session.h"
#include "agent_client/link.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "protocol/mad_messages.h"

namespace verbena::umad {

// What this process asks of its agent: which links there are, and ports of them for management datagrams. Any
// thread. A child after fork() has one of its own; ports that it has inherited stay open to both.
class AgentLink {
 public:
  static AgentLink& current();

  Result<std::vector<agent_client::Link>> links();
  Result<protocol::MadPortReply> port(uint32_t device_index);
  Result<UniqueFd> open(uint32_t device_index);
  // Of the port that has the socket. The agent's number.
  Result<uint32_t> add_agent(int socket, protocol::MadRegisterRequest request);
  Result<void> remove_agent(int socket, uint32_t agent);

 private:
  AgentLink();
  static void after_fork_in_child();
  template <class Reply, class Request>
  Result<agent_client::Answer<Reply>> call(protocol::MessageType type, const Request& request,
                                           size_t min_fds = 0);

  agent_client::AgentSession session_;

  friend struct WatchForks;
};

}  // namespace verbena::umad
