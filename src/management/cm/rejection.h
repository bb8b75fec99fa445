// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/time.h"
#include "management/cm/messages.h"
#include "management/cm/parameters.h"
#include "management/cm/role.h"

namespace verbena::cm {

// A connection that cannot be set up: REJ out and in, and no answer to a REQ or REP. Operations
// are those of Manager.
class Rejection : private Role {
 public:
  explicit Rejection(const RoleParts& parts) : Role(parts) {}

  Result<void> reject(LocalId id, const RejectParameters& parameters, TimePoint now);
  void handle(const Rej& rej, const ReceiverReport& receipt);

  // The owner destroys what is being set up. The peer hears of it.
  void abandon(Connection& connection, TimePoint now);
  // The peer has not answered our REQ or REP.
  void give_up(Connection& connection, TimePoint now);

 private:
  Connection* rejected_by(const Rej& rej, const ReceiverReport& receipt);
  void reject(Connection& connection, const RejectParameters& why, TimePoint now);
  void repeat_through_time_wait(Connection& connection, TimePoint now);
};

}  // namespace verbena::cm
