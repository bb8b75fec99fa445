// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "base/result.h"
#include "control/protocol/connection_messages.h"
#include "libraries/librdmacm/identifier.h"

namespace verbena::rdmacm {

class Process;

// Channels and identifiers: made, moved, destroyed.
Result<std::shared_ptr<Channel>> create_channel(Process& process);
void destroy_channel(Process& process, const std::shared_ptr<Channel>& channel);

// `channel` may be null: then the identifier is synchronous.
Result<Identifier*> create_identifier(rdma_event_channel* channel, void* context, rdma_port_space space,
                                      ibv_qp_type type);
void destroy_identifier(Identifier& identifier);

// Events of the identifier, undelivered ones too, go to `channel` from now on.
Result<void> migrate(Identifier& identifier, std::shared_ptr<Channel> channel);

// The identifier of an incoming request.
Result<Identifier*> adopt_request(Identifier& listener, const protocol::CmEvent& message);
// Its listener is gone, so no program will accept it.
void abandon_request(Process& process, const protocol::CmEvent& message);

}  // namespace verbena::rdmacm
