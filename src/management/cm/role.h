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

// The parts of a manager that all roles use.
struct RoleParts {
  const ManagerConfig& config;
  Counters& counters;
  ConnectionTable& table;
  KnownPeers& known_peers;
  Sender& sender;
  Owner& owner;
};

// A part of the connection manager's protocol: the operations and messages that belong together. A role
// executes operations of the owner and receives messages through its handle() functions. Roles do not know
// each other; code that two of them need is in the parts or in this class.
class Role {
 protected:
  // REQUIRES: the parts outlive the role
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

  // Finds the connection of a message that names both IDs and checks its source address. Null if there is
  // none; the drop is counted.
  Connection* of_peer(LocalId id, uint32_t remote_id, const Incoming& incoming);
  // Handles the first answer to our request, which quotes its ID. If it came from UDP port 4791, the
  // connection and the host must use that port from now on. Later messages set it for the connection only:
  // then our client knows both IDs, and an accomplice on a host with an adapter could quote them to make us
  // ignore that host.
  void note_port_of_answer(Connection& connection, const Incoming& incoming);
  // Whether the peer's QP belongs to another connection that is established here. A QP can have only one, so
  // the peer has lost the old connection, which is therefore ended (IBTA volume 1, 12.9.8.3.1). If another
  // program of the peer's host sent the message, the old one stays and the message counts as dropped.
  // @param is_active whether the peer's QP comes from a REP; otherwise from a REQ
  bool is_stale(uint32_t remote_qpn, bool is_active, const Incoming& incoming);

  const ManagerConfig& config_;
  Counters& counters_;
  ConnectionTable& table_;
  KnownPeers& known_peers_;
  Sender& sender_;
  Owner& owner_;
};

}  // namespace verbena::cm
