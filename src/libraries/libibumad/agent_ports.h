// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "control/model/link.h"
#include "control/protocol/mad_messages.h"

// Requests to the agent (the daemon) about links, and about ports for management datagrams (MADs).
// Thread-safe. A process has one session with the agent. A child after fork() gets a session of its own; both
// processes keep inherited ports open.
namespace verbena::umad {

Result<std::vector<control::Link>> links();
Result<protocol::MadPortReply> query_port(uint32_t device_index);
// Opens a port for management datagrams and adds the port to OpenPorts. Returns the port's socket.
Result<UniqueFd> open_port(const control::Link& link);
// Moves a port whose agent has ended to the next agent. No control::Restorer does this for all ports at once: a
// port also ends alone, with its device, and several processes may have it open. The port keeps its descriptor,
// which stays in its epoll sets. Unanswered requests return to the program as timed out. If no agent can be
// started, waits up to 2 s for an agent to appear. After a wait without success, later calls for the port try
// once and do not wait. Errors: EIO if there is no agent or the agent cannot serve the port.
Result<void> revive_port(int socket);
// add_mad_agent() registers a MAD agent of the program with the socket's port, after reviving the port if
// necessary, and returns the MAD agent's number. remove_mad_agent() unregisters a MAD agent, and also
// succeeds if the port's agent has ended: the next agent will not learn of this MAD agent.
Result<uint32_t> add_mad_agent(int socket, protocol::MadRegisterRequest request);
Result<void> remove_mad_agent(int socket, uint32_t agent);

}  // namespace verbena::umad
