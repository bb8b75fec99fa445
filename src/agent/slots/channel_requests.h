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

// What clients ask of channels: to meet the process that has another slot. The two may be of different users:
// an agent that serves both joins both. Nothing is kept here; both ends of a channel are the clients'.
class ChannelRequests {
 public:
  // Tells a session. False: it does not hear of this. `other`: the user at the other end.
  using Tell = std::function<bool(uint64_t session, control::SlotChannel channel, uid_t other)>;
  ChannelRequests(const SlotLeases& slots, Tell tell) : slots_(slots), tell_(std::move(tell)) {}

  // The session asks for a channel from a slot of its own to another, which may be its own as well. Both are
  // told, the other one first.
  void ask_for_channel(uint64_t session, uint32_t own_slot, uint32_t peer_slot);

 private:
  // Of the process that has the slot now; or why there can be no channel to it.
  Result<uint64_t> session_with(uint32_t slot) const;
  Result<UniqueFd> join(uint64_t session, uint32_t own_slot, uint32_t peer_slot);

  const SlotLeases& slots_;
  const Tell tell_;
};

}  // namespace verbena::agent
