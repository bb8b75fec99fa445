// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/time.h"
#include "management/cm/messages.h"
#include "management/cm/parameters.h"
#include "management/cm/role.h"

namespace verbena::cm {

// Service ID resolution, for UD (IBTA volume 1, 12.11): which QP serves this? SIDR_REQ and SIDR_REP out and
// in, no connection. Operations are those of Manager.
class ServiceResolution : private Role {
 public:
  explicit ServiceResolution(const RoleParts& parts) : Role(parts) {}

  Result<LocalId> request(const SidrRequest& request, uint64_t context, TimePoint now);
  Result<void> reply(LocalId id, const SidrReply& reply, TimePoint now);
  void handle(const SidrReq& req, const ReceiverReport& receipt);
  void handle(const SidrRep& rep, const ReceiverReport& receipt);

  // The owner destroys its question, or a question that it has not answered: that is refused.
  void abandon(Connection& connection, TimePoint now);
  // The peer has not answered.
  void give_up(Connection& connection);

 private:
  void send_rep(Connection& connection, const SidrReply& reply, TimePoint now);
};

}  // namespace verbena::cm
