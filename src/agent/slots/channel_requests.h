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

// Carries out clients' requests for channels (socket pairs) between two slots. The slots may belong to
// different users: the agent connects any two clients that it serves. The agent keeps no end and no record of
// a channel.
class ChannelRequests {
 public:
  // Sends a session its end of a channel, or an errno. `other` is the user of the other slot. Returns false
  // if the session does not exist or cannot get the message.
  using Tell = std::function<bool(uint64_t session, control::SlotChannel channel, uid_t other)>;
  ChannelRequests(const SlotLeases& slots, Tell tell) : slots_(slots), tell_(std::move(tell)) {}

  // Creates a channel from the session's slot `own_slot` to `peer_slot`, which may also be a slot of this
  // session. Sends one end to the peer's session, then the other end to this session. On failure, sends this
  // session only an errno, such as ENOENT if `peer_slot` is not leased.
  void ask_for_channel(uint64_t session, uint32_t own_slot, uint32_t peer_slot);

 private:
  // Returns the session that holds the slot. ENOENT if the slot is not leased, EAGAIN if its process has yet
  // to reconnect, EOPNOTSUPP if the process's library has no channels.
  Result<uint64_t> session_with(uint32_t slot) const;
  Result<UniqueFd> join(uint64_t session, uint32_t own_slot, uint32_t peer_slot);

  const SlotLeases& slots_;
  const Tell tell_;
};

}  // namespace verbena::agent
