// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/client_limits.h"

#include <unistd.h>

namespace verbena::agent {
namespace {

// Limits for an ordinary user of a root agent, for all its programs together: identifiers, unread events, and
// multicast groups.
constexpr size_t kMaxIdentifiersOfStranger = 262144;
constexpr size_t kMaxWaitingEventsOfStranger = 262144;
constexpr size_t kMaxGroupsOfStranger = 262144;

}  // namespace

bool ClientLimits::is_strangers() const {
  return user_ != ::geteuid() && user_ != 0;
}

bool ClientLimits::allows_identifier(size_t held) const {
  return held < kMaxIdentifiers && (!is_strangers() || usage().identifiers < kMaxIdentifiersOfStranger);
}

// Clears only so much at a time that no other client has to wait.
bool ClientLimits::make_room_for_identifier(size_t held) const {
  return allows_identifier(held) || (service_.gone_clients().clear_some_of(user_) && allows_identifier(held));
}

bool ClientLimits::allows_channel(size_t held) const {
  return held < kMaxChannels && service_.channels().allows(user_);
}

bool ClientLimits::allows_group(size_t held_by_identifier) const {
  return held_by_identifier < kMaxGroups && (!is_strangers() || usage().groups < kMaxGroupsOfStranger);
}

bool ClientLimits::allow_waiting_events(size_t waiting) const {
  return waiting <= kMaxWaitingEvents &&
         (!is_strangers() || usage().waiting_events <= kMaxWaitingEventsOfStranger);
}

}  // namespace verbena::agent
