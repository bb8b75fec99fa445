// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "base/time.h"
#include "management/cm/messages.h"
#include "management/cm/parameters.h"
#include "management/cm/role.h"

namespace verbena::cm {

// The role of the side that receives a request for a connection: handles REQs, sends REPs, handles RTUs.
// Manager documents the operations reply() and establish().
class PassiveSide : private Role {
 public:
  explicit PassiveSide(const RoleParts& parts) : Role(parts) {}

  Result<void> reply(LocalId id, const ConnectReply& reply, TimePoint now);
  Result<void> establish(LocalId id);
  void handle(const Req& req, const Incoming& incoming);
  void handle(const Rtu& rtu, const Incoming& incoming);

 private:
  void repeat_answer(const Req& req, Connection& connection, const Incoming& incoming);
  void settle_crossing(Connection& mine, const Req& req, const Incoming& incoming);
  void begin(Connection& connection, const Req& req, const Incoming& incoming);
};

}  // namespace verbena::cm
