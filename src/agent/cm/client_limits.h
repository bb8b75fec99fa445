// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <sys/types.h>

#include "agent/cm/service.h"

namespace verbena::agent {

// Limits the identifiers, event channels, queued events and multicast groups of one client. A user other than
// root and the agent's own has limits for all its programs together, too. For the agent's thread.
class ClientLimits {
 public:
  // Maximum numbers for one client.
  static constexpr size_t kMaxIdentifiers = 131072;
  static constexpr size_t kMaxChannels = 16384;
  static constexpr size_t kMaxWaitingEvents = 65536;  // queued in the agent, in all channels of the client
  static constexpr size_t kMaxGroups = 4096;          // of one identifier
  // Returns the quota of event channels for all clients, if the agent may open `descriptors` descriptors.
  // Channels may use a quarter of them, one each.
  static constexpr Quota::Size channels_with(size_t descriptors) { return Quota::Size::of(descriptors / 4); }

  // REQUIRES: service outlives this object
  ClientLimits(CmService& service, uid_t user) : service_(service), user_(user) {}

  // Return whether the client may have one more item, given the number that it has now: `held` by the client,
  // or `held_by_identifier` for groups.
  bool allows_identifier(size_t held) const;
  bool allows_channel(size_t held) const;
  bool allows_group(size_t held_by_identifier) const;
  // Returns whether `waiting`, the client's queued events, and those of its user are within the limits.
  bool allow_waiting_events(size_t waiting) const;

  // Like allows_identifier(). At the limit, first destroys identifiers of the user's ended programs.
  bool make_room_for_identifier(size_t held) const;
  void take_identifier() const { service_.shares().identifiers.take(user_); }
  void give_back_identifier() const { service_.shares().identifiers.give_back(user_); }
  void take_group() const { service_.shares().groups.take(user_); }
  void give_back_groups(size_t count) const { service_.shares().groups.give_back(user_, count); }
  Quota& waiting_events() const { return service_.shares().waiting_events; }
  void take_channel() const { service_.channels().take(user_); }
  void give_back_channels(size_t count) const { service_.channels().give_back(user_, count); }

 private:
  bool allows_another(const Quota& items) const;

  CmService& service_;
  const uid_t user_;
};

}  // namespace verbena::agent
