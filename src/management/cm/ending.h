// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/time.h"
#include "management/cm/messages.h"
#include "management/cm/role.h"

namespace verbena::cm {

// The role that ends established connections: DREQ and DREP, sent and received, TIMEWAIT, and the expiry of
// waiting and lingering connections. For its operations see Manager.
class Ending : private Role {
 public:
  explicit Ending(const RoleParts& parts) : Role(parts) {}

  Result<void> disconnect(LocalId id, ConstBytes private_data, TimePoint now);
  Result<void> confirm_disconnect(LocalId id, ConstBytes private_data, TimePoint now);
  void handle(const Dreq& dreq, const Incoming& incoming);
  void handle(const Drep& drep, const Incoming& incoming);

  // Handles destroy() of a connection that is established or being disconnected: sends the DREQ or DREP that
  // the peer expects.
  void abandon(Connection& connection, TimePoint now);
  // Ends a connection whose DREQ the peer has not answered.
  void give_up(Connection& connection, TimePoint now);
  // Ends TIMEWAIT, or the lingering of a refused connection.
  void end_wait(Connection& connection);

 private:
  void accept(const Dreq& dreq, Connection& connection, const Incoming& incoming);
  void send_drep(Connection& connection, ConstBytes private_data, TimePoint now);
  void answer_drep(const Dreq& dreq, const Incoming& incoming);
};

}  // namespace verbena::cm
