// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>

#include <sys/types.h>

#include "management/cm/events.h"

namespace verbena::agent {

class CmService;

// Ends the connections of QPs in a slot whose lease has ended. The slot's next owner has QPs of the same
// numbers, and peers would refuse its connections as long as they know the old ones. Works in steps, in turns
// of the slot's last user (UserTurns). For the agent's thread.
class EndedSlots {
 public:
  // REQUIRES: service outlives this object
  explicit EndedSlots(CmService& service) : service_(service) {}
  EndedSlots(const EndedSlots&) = delete;
  EndedSlots& operator=(const EndedSlots&) = delete;

  // Starts to end the connections that programs of `user` have with QPs in the slot. Their peers get a
  // message, and their programs an event.
  void end(uint32_t slot, uid_t user);
  // Returns whether the slot may be leased again. Returns false until end() has handled all connections of
  // the slot. With `to_another_user`, also returns false while the connection manager still has a connection
  // with a QP in the slot.
  bool may_be_leased(uint32_t slot, bool to_another_user) const;

 private:
  // The position at which end_some() continues.
  struct Ending {
    uid_t user;
    uint32_t qpn;
    cm::LocalId id;
  };
  // Handles up to 64 connections. Returns false if none are left.
  bool end_some(uint32_t slot);
  void end_one(cm::LocalId id, uint64_t context, uid_t user);

  CmService& service_;
  std::map<uint32_t, Ending> endings_;  // by slot
};

}  // namespace verbena::agent
