// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "agent/cm/client_host.h"
#include "agent/cm/service.h"

namespace verbena::agent {

// How much a client may have, and its user with all programs: everything that a program can make the agent
// hold is counted here. Of the agent's thread.
class ClientLimits {
 public:
  static constexpr size_t kMaxIdentifiers = 131072;
  static constexpr size_t kMaxChannels = 16384;
  static constexpr size_t kMaxWaitingEvents = 65536;  // in all its channels
  static constexpr size_t kMaxGroups = 4096;          // of one identifier

  // REQUIRES: both outlive this
  ClientLimits(CmService& service, const CmClientHost& host) : service_(service), host_(host) {}

  // Whether the client may have another one when it has so many already.
  bool allows_identifier(size_t held) const;
  bool allows_channel(size_t held) const;
  bool allows_group(size_t held_by_identifier) const;
  // Whether the client, or its user, may let so many events wait.
  bool allow_waiting_events(size_t waiting) const;

  CmService::Usage& usage() const { return service_.usage_of(host_.user()); }
  void take_channel() const { service_.channels().take(host_.user()); }
  void give_back_channels(size_t count) const { service_.channels().give_back(host_.user(), count); }

 private:
  bool is_strangers() const;

  CmService& service_;
  const CmClientHost& host_;
};

}  // namespace verbena::agent
