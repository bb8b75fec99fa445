// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/time.h"
#include "management/cm/messages.h"
#include "management/cm/role.h"

namespace verbena::cm {

// The end of a connection that was established: DREQ and DREP out and in, TIMEWAIT, and the end of whatever
// waits or lingers. Operations are those of Manager.
class Ending : private Role {
 public:
  explicit Ending(const RoleParts& parts) : Role(parts) {}

  Result<void> disconnect(LocalId id, ConstBytes private_data, TimePoint now);
  Result<void> confirm_disconnect(LocalId id, ConstBytes private_data, TimePoint now);
  void handle(const Dreq& dreq, const ReceiverReport& receipt);
  void handle(const Drep& drep, const ReceiverReport& receipt);

  // The owner destroys what stands or is being disconnected. The peer gets what it is owed.
  void abandon(Connection& connection, TimePoint now);
  // The peer has not answered our DREQ.
  void give_up(Connection& connection, TimePoint now);
  // TIMEWAIT is over, or the time in which a refused peer might ask again.
  void end_wait(Connection& connection);

 private:
  void accept(const Dreq& dreq, Connection& connection, const ReceiverReport& receipt);
  void send_drep(Connection& connection, ConstBytes private_data, TimePoint now);
  void answer_drep(const Dreq& dreq, const ReceiverReport& receipt);
};

}  // namespace verbena::cm
