// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "agent/cm/client_channels.h"
#include "agent/cm/client_limits.h"
#include "agent/cm/identifier.h"
#include "agent/cm/service.h"
#include "control/model/admin_error.h"
#include "control/protocol/connection_messages.h"

namespace verbena::agent {

class CmClient;

// The identifiers of one client, by their numbers: those that its program has made and those of requests
// that came to them. Of the agent's thread.
class ClientIdentifiers {
 public:
  // In the order of their numbers: who goes through them little by little finds the next one.
  using Map = std::map<uint32_t, std::unique_ptr<CmIdentifier>>;

  // `client` is whose identifiers they are. REQUIRES: all of them outlive this
  ClientIdentifiers(CmClient& client, CmService& service, const ClientLimits& limits,
                    ClientChannels& channels)
      : client_(client), service_(service), limits_(limits), channels_(channels) {}
  ~ClientIdentifiers();
  ClientIdentifiers(const ClientIdentifiers&) = delete;
  ClientIdentifiers& operator=(const ClientIdentifiers&) = delete;

  CmIdentifier* find(uint32_t number);
  const Map& all() const { return ids_; }

  // A new one, idle.
  control::AdminResult<CmIdentifier*> make(const protocol::CmCreateRequest& request);
  // That of a request that came to the listener; it gets a number of the agent's.
  CmIdentifier& add(std::unique_ptr<CmIdentifier> request, const CmIdentifier& listener);
  bool has_room() const { return limits_.make_room_for_identifier(ids_.size()); }

  // Takes back what the identifier holds elsewhere, and forgets it. What its peer is owed is the connection
  // manager's business from here.
  void erase(CmIdentifier& id);
  // Erases those of the channel, from the identifier `from` on; looks at so many at most. Answers where to go
  // on: 0 at the end.
  uint32_t erase_some_of(uint32_t channel, uint32_t from, size_t most);
  // The client has gone: destroys so many at most, and answers how many.
  size_t clear(size_t most);

 private:
  CmIdentifier& keep(std::unique_ptr<CmIdentifier> id);
  void say_farewell(CmIdentifier& id);
  void discard(CmIdentifier& id);

  CmClient& client_;
  CmService& service_;
  const ClientLimits& limits_;
  ClientChannels& channels_;
  Map ids_;
  uint32_t next_agents_number_ = 1;
};

}  // namespace verbena::agent
