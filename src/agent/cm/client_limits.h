// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <sys/types.h>

#include "agent/cm/service.h"

namespace verbena::agent {

// The limits of a client, and of its user for all programs together. Everything that a program can make the
// agent hold is counted here. For the agent's thread.
class ClientLimits {
 public:
  static constexpr size_t kMaxIdentifiers = 131072;
  static constexpr size_t kMaxChannels = 16384;
  static constexpr size_t kMaxWaitingEvents = 65536;  // in all channels of the client
  static constexpr size_t kMaxGroups = 4096;          // of one identifier
  // Event channels of all clients, where the agent may open so many descriptors: each costs one.
  static constexpr Quota::Size channels_with(size_t descriptors) { return Quota::Size::of(descriptors / 4); }

  // REQUIRES: service outlives this object
  ClientLimits(CmService& service, uid_t user) : service_(service), user_(user) {}

  // Whether the client may have one more, if it has `held` now.
  bool allows_identifier(size_t held) const;
  bool allows_channel(size_t held) const;
  bool allows_group(size_t held_by_identifier) const;
  // Whether `waiting` unread events are within the limits of the client and its user.
  bool allow_waiting_events(size_t waiting) const;

  // Whether the client may have another identifier. If not at first, clears a part of what ended programs of
  // its user have left.
  bool make_room_for_identifier(size_t held) const;
  CmService::Usage& usage() const { return service_.usage_of(user_); }
  void take_channel() const { service_.channels().take(user_); }
  void give_back_channels(size_t count) const { service_.channels().give_back(user_, count); }

 private:
  bool is_strangers() const;

  CmService& service_;
  const uid_t user_;
};

}  // namespace verbena::agent
