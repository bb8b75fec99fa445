// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/time.h"
#include "management/cm/messages.h"
#include "management/cm/role.h"

namespace verbena::cm {

// The role that ends established connections: sends and handles DREQs and DREPs, and ends TIMEWAIT and
// lingering. Manager documents the operations disconnect() and confirm_disconnect().
class Ending : private Role {
 public:
  explicit Ending(const RoleParts& parts) : Role(parts) {}

  Result<void> disconnect(LocalId id, ConstBytes private_data, TimePoint now);
  Result<void> confirm_disconnect(LocalId id, ConstBytes private_data, TimePoint now);
  void handle(const Dreq& dreq, const Incoming& incoming);
  void handle(const Drep& drep, const Incoming& incoming);

  // Handles destroy() of a connection that is established or being disconnected: sends the DREQ or DREP that
  // the peer expects. The peer of an established XRC target gets no DREQ, since the target's QP outlives its
  // program.
  void abandon(Connection& connection, TimePoint now);
  // Ends a connection whose DREQ was never answered: enters TIMEWAIT, calls on_disconnected(nullptr).
  void give_up(Connection& connection, TimePoint now);
  // Ends TIMEWAIT with on_time_wait_exit(), or the lingering of a refused connection without an event.
  void end_wait(Connection& connection);

 private:
  void accept(const Dreq& dreq, Connection& connection, const Incoming& incoming);
  void send_drep(Connection& connection, ConstBytes private_data, TimePoint now);
  void answer_drep(const Dreq& dreq, const Incoming& incoming);
};

}  // namespace verbena::cm
