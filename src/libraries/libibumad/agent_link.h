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

// This process's connection to the agent (the daemon), for management datagrams (MADs): lists links, and
// opens ports. Thread-safe. A child after fork() opens a connection of its own; both processes keep inherited
// ports open.
class AgentLink {
 public:
  static AgentLink& current();

  Result<std::vector<control::Link>> links();
  Result<protocol::MadPortReply> port(uint32_t device_index);
  // Opens a port for management datagrams and adds the port to OpenPorts. Returns the port's socket.
  Result<UniqueFd> open(const control::Link& link);
  // Moves a port whose agent has ended to the next agent. The port keeps its descriptor, which stays in its
  // epoll sets. Unanswered requests return to the program as timed out. If no agent can be started, waits up
  // to 2 s for an agent to appear. After a wait without success, later calls for the port try once and do not
  // wait. Errors: EIO if there is no agent or the agent cannot serve the port.
  Result<void> revive(int socket);
  // add_agent() registers a MAD agent of the program with the socket's port, after reviving the port if
  // necessary, and returns the MAD agent's number. remove_agent() unregisters a MAD agent, and also succeeds
  // if the port's agent has ended.
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
