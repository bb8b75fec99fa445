// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "libraries/librdmacm/agent_link.h"

namespace verbena::rdmacm {

// The state of librdmacm in a process. A child after fork() gets a new one: inherited identifiers and
// channels belong to its parent. In the child, calls about inherited identifiers fail with ENODEV, except
// rdma_destroy_id(3); calls about inherited channels fail with EBADF.
class Process {
 public:
  static Process& current();
  bool is_current() const;

  IdentifierTable identifiers;
  AgentLink agent{identifiers};
  Devices devices;

 private:
  Process() = default;
};

// Create and destroy an event channel, in this process and at the agent. create_channel() returns ENODEV if
// there is no RDMA device.
Result<std::shared_ptr<Channel>> create_channel(Process& process);
void destroy_channel(Process& process, const std::shared_ptr<Channel>& channel);

// Creates an identifier, in this process and at the agent. Without a channel, the identifier is synchronous.
// Errors: EINVAL for an unknown port space; ENODEV if there is no RDMA device; EBADF if `channel` was
// destroyed; those of the agent.
Result<Identifier*> create_identifier(rdma_event_channel* channel, void* context, rdma_port_space space,
                                      ibv_qp_type type);
// Destroys an identifier, here and at the agent. Drops its undelivered events, and waits until the
// application has acknowledged the delivered ones.
void destroy_identifier(Identifier& identifier);

// Redirects the identifier's events, including undelivered ones, to `channel`.
Result<void> migrate(Identifier& identifier, std::shared_ptr<Channel> channel);

// Creates the identifier of an incoming connection request, when the application reads the event `message`.
Result<Identifier*> adopt_request(Identifier& listener, const protocol::CmEvent& message);
// If `message` is a connection request, destroys the request at the agent, because no program will accept it.
// Called if the listener was destroyed, or no identifier could be created for the request.
void abandon_request(Process& process, const protocol::CmEvent& message);

}  // namespace verbena::rdmacm
