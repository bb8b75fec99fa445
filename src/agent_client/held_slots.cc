// SPDX-License-Identifier: Apache-2.0
#include "agent_client/held_slots.h"

#include <algorithm>

#include "base/log.h"

namespace verbena::agent_client {

bool HeldSlots::contains(uint32_t index) const {
  return std::ranges::find(indexes_, index) != indexes_.end();
}

Result<void> HeldSlots::restore(const NewAgent& agent) {
  for (const uint32_t index : indexes_) {
    protocol::SlotRequest request{};
    request.index = index;
    const auto kept = agent.connection.call<protocol::PlainReply>(protocol::MessageType::kKeepSlot, request,
                                                                  0, agent.deadline);
    if (kept) continue;
    if (agent.connection.lost()) return fail(kept.error().code);
    log_warning("the restarted agent does not know our slot {}: {}", index, kept.error().text);
  }
  return {};
}

}  // namespace verbena::agent_client
