// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>

#include <sys/types.h>

#include "management/cm/events.h"

namespace verbena::agent {

class CmService;

// Ends the connections of QPs whose slot has come back. The slot's next owner has QPs of the same numbers,
// and peers would refuse its connections as long as they know the old ones. Works in turns of the slot's
// user. For the agent's thread.
class EndedSlots {
 public:
  // REQUIRES: service outlives this
  explicit EndedSlots(CmService& service) : service_(service) {}
  EndedSlots(const EndedSlots&) = delete;
  EndedSlots& operator=(const EndedSlots&) = delete;

  // This user's connections with a QP in the slot end. Their peers and their programs are told.
  void end(uint32_t slot, uid_t user);
  // Whether the slot may be leased again. Its last user waits until all connections were looked at, another
  // user until no peer knows one any more.
  bool may_be_leased(uint32_t slot, bool to_another_user) const;

 private:
  // Where to go on.
  struct Ending {
    uid_t user;
    uint32_t qpn;
    cm::LocalId id;
  };
  // False: that was the rest.
  bool end_some(uint32_t slot);
  void end_one(cm::LocalId id, uint64_t context, uid_t user);

  CmService& service_;
  std::map<uint32_t, Ending> endings_;  // by slot
};

}  // namespace verbena::agent
