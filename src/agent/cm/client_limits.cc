// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/client_limits.h"

namespace verbena::agent {

bool ClientLimits::allows_another(const Quota& items) const {
  return items.is_trusted(user_) || (items.of(user_) < CmService::Shares::kMaxOfUser && items.allows(user_));
}

bool ClientLimits::allows_identifier(size_t held) const {
  return held < kMaxIdentifiers && allows_another(service_.shares().identifiers);
}

// Clears only so much at a time that no other client has to wait.
bool ClientLimits::make_room_for_identifier(size_t held) const {
  return allows_identifier(held) || (service_.gone_clients().clear_some_of(user_) && allows_identifier(held));
}

bool ClientLimits::allows_channel(size_t held) const {
  return held < kMaxChannels && service_.channels().allows(user_);
}

bool ClientLimits::allows_group(size_t held_by_identifier) const {
  return held_by_identifier < kMaxGroups && allows_another(service_.shares().groups);
}

bool ClientLimits::allow_waiting_events(size_t waiting) const {
  return waiting <= kMaxWaitingEvents && (waiting == 0 || allows_another(waiting_events()));
}

}  // namespace verbena::agent
