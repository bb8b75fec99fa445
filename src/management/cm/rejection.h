// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/time.h"
#include "management/cm/messages.h"
#include "management/cm/parameters.h"
#include "management/cm/role.h"

namespace verbena::cm {

// The role for connections that cannot be set up: sends and handles REJs, and gives up REQs and REPs without
// an answer. Manager documents the operation reject().
class Rejection : private Role {
 public:
  explicit Rejection(const RoleParts& parts) : Role(parts) {}

  Result<void> reject(LocalId id, const RejectParameters& parameters, TimePoint now);
  void handle(const Rej& rej, const Incoming& incoming);

  // Handles destroy() of a connection that is being set up: sends a REJ.
  void abandon(Connection& connection, TimePoint now);
  // Ends a connection whose REQ or REP was never answered: sends a REJ ("timeout"), calls on_unreachable().
  void give_up(Connection& connection, TimePoint now);

 private:
  Connection* rejected_by(const Rej& rej, const Incoming& incoming);
  void reject(Connection& connection, const RejectParameters& why, TimePoint now);
  void repeat_through_time_wait(Connection& connection, TimePoint now);
};

}  // namespace verbena::cm
