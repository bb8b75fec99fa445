// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/time.h"
#include "management/cm/messages.h"
#include "management/cm/parameters.h"
#include "management/cm/role.h"

namespace verbena::cm {

// The role for service ID resolution, used by UD (IBTA volume 1, 12.11): finds the QP of a service without a
// connection. Sends and handles SIDR_REQs and SIDR_REPs. Operations: Manager::sidr_request(), sidr_reply().
class ServiceResolution : private Role {
 public:
  explicit ServiceResolution(const RoleParts& parts) : Role(parts) {}

  Result<LocalId> request(const SidrRequest& request, uint64_t context, TimePoint now);
  Result<void> reply(LocalId id, const SidrReply& reply, TimePoint now);
  void handle(const SidrReq& req, const Incoming& incoming);
  void handle(const SidrRep& rep, const Incoming& incoming);

  // Handles destroy(): stops repeating our own request, or refuses the peer's request with a SIDR_REP.
  void abandon(Connection& connection, TimePoint now);
  // Ends our request after its last retransmission, with on_unreachable(kSidrReq).
  void give_up(Connection& connection);

 private:
  void send_rep(Connection& connection, const SidrReply& reply, TimePoint now);
};

}  // namespace verbena::cm
