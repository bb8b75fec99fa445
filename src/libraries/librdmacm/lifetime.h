// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "base/result.h"
#include "control/protocol/connection_messages.h"
#include "libraries/librdmacm/identifier.h"

namespace verbena::rdmacm {

class Process;

// Creation, migration and destruction of channels and identifiers.
Result<std::shared_ptr<Channel>> create_channel(Process& process);
void destroy_channel(Process& process, const std::shared_ptr<Channel>& channel);

// Creates an identifier; a null `channel` makes it synchronous.
Result<Identifier*> create_identifier(rdma_event_channel* channel, void* context, rdma_port_space space,
                                      ibv_qp_type type);
void destroy_identifier(Identifier& identifier);

// Redirects the identifier's events, including undelivered ones, to `channel`.
Result<void> migrate(Identifier& identifier, std::shared_ptr<Channel> channel);

// Creates the identifier of an incoming connection request.
Result<Identifier*> adopt_request(Identifier& listener, const protocol::CmEvent& message);
// Destroys an incoming connection request whose listener is gone: no program will accept it.
void abandon_request(Process& process, const protocol::CmEvent& message);

}  // namespace verbena::rdmacm
