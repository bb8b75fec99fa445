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

// Owns the identifiers of one client, by number: those that its program has created, and one for each request
// that came to its listeners. For the agent's thread.
class ClientIdentifiers {
 public:
  // Ordered by number, so that an iteration in steps can continue after the last number.
  using Map = std::map<uint32_t, std::unique_ptr<CmIdentifier>>;

  // `client`: the client of these identifiers. REQUIRES: all arguments outlive this object
  ClientIdentifiers(CmClient& client, CmService& service, const ClientLimits& limits,
                    ClientChannels& channels)
      : client_(client), service_(service), limits_(limits), channels_(channels) {}
  ~ClientIdentifiers();
  ClientIdentifiers(const ClientIdentifiers&) = delete;
  ClientIdentifiers& operator=(const ClientIdentifiers&) = delete;

  CmIdentifier* find(uint32_t number);
  const Map& all() const { return ids_; }

  // Creates an idle identifier, with number and channel from the request. Errors: EINVAL if the number is in
  // use or from the agent's range, or if the port space is unknown or does not fit the QP type. ENOENT if
  // there is no such channel, ENOMEM if there are too many identifiers.
  control::AdminResult<CmIdentifier*> make(const protocol::CmCreateRequest& request);
  // Adds `request`, the identifier of an incoming request. The identifier gets its listener's channel and a
  // new number from the agent's range (the bit kCmAgentsNumber is set).
  CmIdentifier& add(std::unique_ptr<CmIdentifier> request, const CmIdentifier& listener);
  bool has_room() const { return limits_.make_room_for_identifier(ids_.size()); }

  // Destroys the identifier, and releases its port, connection and groups. The connection manager still sends
  // the peer the message that ends the connection.
  void erase(CmIdentifier& id);
  // Erases identifiers of the channel, starting at number `from`. Examines at most `most` identifiers of any
  // channel. Returns the number at which to continue, or 0 if all were examined.
  uint32_t erase_some_of(uint32_t channel, uint32_t from, size_t most);
  // Destroys up to `most` identifiers of a client that has gone. Unlike erase(), also disconnects XRC
  // targets. Returns the number of destroyed identifiers.
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
