// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "management/cm/connection_table.h"
#include "management/cm/counters.h"
#include "management/cm/incoming.h"
#include "management/cm/known_peers.h"
#include "management/cm/manager_config.h"
#include "management/cm/owner.h"
#include "management/cm/sender.h"

namespace verbena::cm {

// The objects of a manager that all its roles use.
struct RoleParts {
  const ManagerConfig& config;
  Counters& counters;
  ConnectionTable& table;
  KnownPeers& known_peers;
  Sender& sender;
  Owner& owner;
};

// The base of the roles. A role is one part of the connection manager's protocol: operations and messages
// that belong together. A role executes the owner's operations and receives messages through its handle()
// functions. Roles do not call each other; code that two roles need is in RoleParts or in this class.
class Role {
 protected:
  // REQUIRES: the objects in `parts` outlive the role
  explicit Role(const RoleParts& parts)
      : config_(parts.config),
        counters_(parts.counters),
        table_(parts.table),
        known_peers_(parts.known_peers),
        sender_(parts.sender),
        owner_(parts.owner) {}
  ~Role() = default;

  void drop(DropReason reason) { ++counters_.of(reason); }
  void count_duplicate(MessageType type) { ++counters_.duplicates[static_cast<size_t>(type)]; }

  // Finds the connection of a message that names both IDs, and checks the peer's ID and address. Returns
  // nullptr, and counts the drop, if the connection is unknown or has another peer. Otherwise records that
  // the peer has answered.
  Connection* of_peer(LocalId id, uint32_t remote_id, const Incoming& incoming);
  // Called for the first answer to our request, which quotes the request's ID. If the answer came from UDP
  // port 4791, messages from other ports are dropped from now on, for the whole host. Later messages from
  // port 4791 have this effect for their connection only. By then our client knows both IDs. An accomplice on
  // a host with an RDMA adapter could quote them, and so make us drop that host's other messages.
  void note_port_of_answer(Connection& connection, const Incoming& incoming);
  // Whether the peer's QP belongs to another connection of ours (kHoldsRemoteQpn). A QP can have only one
  // connection, so the peer has lost the old one. If the old connection is established, sends a DREQ for it
  // (IBTA volume 1, 12.9.8.3.1). If another program of the peer's host sent the message, the old connection
  // stays and the message counts as dropped. `is_active`: the message is a REP; otherwise it is a REQ.
  bool is_stale(uint32_t remote_qpn, bool is_active, const Incoming& incoming);

  const ManagerConfig& config_;
  Counters& counters_;
  ConnectionTable& table_;
  KnownPeers& known_peers_;
  Sender& sender_;
  Owner& owner_;
};

}  // namespace verbena::cm
