// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "agent/slots/slot_leases.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "control/model/slot_channel.h"

namespace verbena::agent {

// Carries out clients' requests for channels between two slots. The slots may belong to different users: the
// agent connects any two clients that it serves. The agent keeps nothing: the clients own both ends.
class ChannelRequests {
 public:
  // Sends a message to a session. `other` is the user at the other end. Returns false if the session does not
  // get such messages.
  using Tell = std::function<bool(uint64_t session, control::SlotChannel channel, uid_t other)>;
  ChannelRequests(const SlotLeases& slots, Tell tell) : slots_(slots), tell_(std::move(tell)) {}

  // Creates a channel from the session's slot `own_slot` to `peer_slot`, which may also be a slot of this
  // session. Sends an end to each session, first to the peer's.
  void ask_for_channel(uint64_t session, uint32_t own_slot, uint32_t peer_slot);

 private:
  // Returns the session that holds the slot, or why no channel to it is possible.
  Result<uint64_t> session_with(uint32_t slot) const;
  Result<UniqueFd> join(uint64_t session, uint32_t own_slot, uint32_t peer_slot);

  const SlotLeases& slots_;
  const Tell tell_;
};

}  // namespace verbena::agent
