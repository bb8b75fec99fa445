// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "agent/cm/client_channels.h"
#include "agent/cm/client_limits.h"
#include "agent/cm/identifier.h"
#include "agent/cm/service.h"
#include "agent_client/admin.h"
#include "protocol/connection_messages.h"

namespace verbena::agent {

class CmClient;

// The identifiers of one client, by their numbers: those that its program has made and those of requests
// that came to them. Of the agent's thread.
class ClientIdentifiers {
 public:
  using Map = std::unordered_map<uint32_t, std::unique_ptr<CmIdentifier>>;

  // `client` is whose identifiers they are. REQUIRES: all of them outlive this
  ClientIdentifiers(CmClient& client, CmService& service, const ClientLimits& limits,
                    ClientChannels& channels)
      : client_(client), service_(service), limits_(limits), channels_(channels) {}
  ~ClientIdentifiers();
  ClientIdentifiers(const ClientIdentifiers&) = delete;
  ClientIdentifiers& operator=(const ClientIdentifiers&) = delete;

  const std::shared_ptr<ConnectionTrace>& trace() const;
  CmIdentifier* find(uint32_t number);
  const Map& all() const { return ids_; }

  // A new one, idle.
  agent_client::AdminResult<CmIdentifier*> make(const protocol::CmCreateRequest& request);
  // That of a request that came to the listener; it gets a number of the agent's.
  CmIdentifier& add(std::unique_ptr<CmIdentifier> request, const CmIdentifier& listener);
  bool has_room() const { return limits_.make_room_for_identifier(ids_.size()); }

  // Takes back what the identifier holds elsewhere, and forgets it. What its peer is owed is the connection
  // manager's business from here.
  void erase(CmIdentifier& id);
  void erase_those_of(uint32_t channel);
  // Gives those of the channel to a client that is about to go (GoneClients), but for those that are
  // destroyed otherwise at a program's end: these are erased. REQUIRES: the heir is of the same user
  void pass_those_of(uint32_t channel, CmClient& heir);
  // REQUIRES: its number is new here
  void inherit(std::unique_ptr<CmIdentifier> id);
  // The client has gone: destroys so many at most, and answers how many.
  size_t clear(size_t most);

 private:
  CmIdentifier& keep(std::unique_ptr<CmIdentifier> id);
  void say_farewell(CmIdentifier& id);
  void discard(CmIdentifier& id);
  // Each that goes with the channel is handed to `part`, and forgotten.
  template <class Part>
  void part_with_those_of(uint32_t channel, Part part);

  CmClient& client_;
  CmService& service_;
  const ClientLimits& limits_;
  ClientChannels& channels_;
  Map ids_;
  uint32_t next_agents_number_ = 1;
};

}  // namespace verbena::agent
