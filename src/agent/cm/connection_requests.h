// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "agent/cm/client_role.h"
#include "control/protocol/connection_messages.h"

namespace verbena::agent {

// Carries out a client's requests about connections: connect, accept, reject, establish, disconnect.
class ConnectionRequests : private ClientRole {
 public:
  explicit ConnectionRequests(const ClientParts& parts) : ClientRole(parts) {}

  Outcome connect(const protocol::CmConnectRequest& request);
  Outcome accept(const protocol::CmConnectRequest& request);
  Outcome reject(const protocol::CmRejectRequest& request);
  EventOutcome establish(const protocol::CmIdRequest& request);
  Outcome disconnect(const protocol::CmIdRequest& request);

 private:
  Outcome connect_stream(CmIdentifier& id, const protocol::ConnectionParameters& parameters);
  Outcome connect_datagram(CmIdentifier& id, const protocol::ConnectionParameters& parameters);
  Outcome answer_request(CmIdentifier& id, const protocol::CmConnectRequest& request);
  Outcome accept_stream(CmIdentifier& id, const protocol::ConnectionParameters& parameters);
  Outcome accept_datagram(CmIdentifier& id, const protocol::CmConnectRequest& request);
  Result<void> send_rejection(CmIdentifier& id, uint8_t reason, ConstBytes data);
};

}  // namespace verbena::agent
