// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/time.h"
#include "management/cm/messages.h"
#include "management/cm/parameters.h"
#include "management/cm/role.h"

namespace verbena::cm {

// The role that changes an established connection's alternate path: sends and handles LAPs and APRs. Manager
// documents the operations load_alternate_path() and answer_alternate_path().
class Migration : private Role {
 public:
  explicit Migration(const RoleParts& parts) : Role(parts) {}

  Result<void> load_alternate_path(LocalId id, const PathFields& path, ConstBytes private_data,
                                   TimePoint now);
  Result<void> answer_alternate_path(LocalId id, AprStatus status, ConstBytes info, ConstBytes private_data);
  void handle(const Lap& lap, const Incoming& incoming);
  void handle(const Apr& apr, const Incoming& incoming);

  // Ends a migration whose LAP was never answered: calls on_unreachable(kLap). The connection stays.
  void give_up(Connection& connection);

 private:
  void refuse(const Lap& lap, AprStatus status, const Incoming& incoming);
  void end(Connection& connection);
};

}  // namespace verbena::cm
