// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "control/client/agent_session.h"
#include "control/model/link.h"
#include "control/protocol/mad_messages.h"
#include "libraries/libibumad/open_ports.h"

namespace verbena::umad {

// What this process asks of its agent: which links there are, and ports of them for management datagrams. Any
// thread. A child after fork() has one of its own; ports that it has inherited stay open to both.
class AgentLink {
 public:
  static AgentLink& current();

  Result<std::vector<control::Link>> links();
  Result<protocol::MadPortReply> port(uint32_t device_index);
  // It is in OpenPorts from then on.
  Result<UniqueFd> open(const control::Link& link);
  // The agent of the port has ended: the next one is told of it, and serves it under the same descriptor,
  // which stays in the epoll sets that it is in. Requests that the one before had not answered come back as
  // if they had not been answered. Waits a while for an agent to come where none can be started; not again,
  // once it has waited in vain. EIO: there is no agent, or it cannot have the port.
  Result<void> revive(int socket);
  // Of the port that has the socket, which is revived where it has to be. The agent's number.
  Result<uint32_t> add_agent(int socket, protocol::MadRegisterRequest request);
  Result<void> remove_agent(int socket, uint32_t agent);

 private:
  AgentLink();
  static void after_fork_in_child();
  using Turn = control::AgentSession::Turn;
  template <class Reply = protocol::PlainReply, class Request>
  static Result<control::Answer<Reply>> call_in(Turn& turn, protocol::MessageType type,
                                                const Request& request, size_t min_fds = 0);
  static Result<std::vector<control::Link>> links_in(Turn& turn);
  struct Opened {
    UniqueFd socket;
    uint64_t number;
    bool takes_long;
  };
  static Result<Opened> open_in(Turn& turn, uint32_t device_index);
  Result<void> revive_once(int socket);
  static Result<void> register_in(Turn& turn, uint64_t number, const OpenedPort& port);
  template <class Reply, class Request>
  Result<control::Answer<Reply>> call(protocol::MessageType type, const Request& request, size_t min_fds = 0);

  control::AgentSession session_;

  friend struct WatchForks;
};

}  // namespace verbena::umad
