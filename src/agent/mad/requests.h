// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "agent/mad/dispatcher.h"
#include "agent/sessions/session_reply.h"
#include "agent/slots/slot_table.h"
#include "control/protocol/mad_messages.h"
#include "control/protocol/messages.h"

namespace verbena::agent {

// Carries out clients' requests about ports for management datagrams and MAD agents.
// control/protocol/mad_messages.h describes the requests and their errors.
class MadRequests {
 public:
  explicit MadRequests(MadDispatcher& dispatcher) : dispatcher_(dispatcher) {}

  RequestResult<protocol::MadPortReply> get_port(const Lessee& client,
                                                 const protocol::DeviceRequest& request);
  RequestResult<> open_port(const Lessee& client, const protocol::DeviceRequest& request);
  RequestResult<protocol::MadRegisterReply> add_agent(const Lessee& client,
                                                      const protocol::MadRegisterRequest& request);
  RequestResult<> remove_agent(const Lessee& client, const protocol::MadRegisterRequest& request);

 private:
  MadDispatcher& dispatcher_;
};

}  // namespace verbena::agent
