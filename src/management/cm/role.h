// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "management/cm/connection_table.h"
#include "management/cm/counters.h"
#include "management/cm/known_peers.h"
#include "management/cm/manager_config.h"
#include "management/cm/owner.h"
#include "management/cm/receipt.h"
#include "management/cm/sender.h"

namespace verbena::cm {

// What all roles of a manager work with.
struct RoleParts {
  const ManagerConfig& config;
  Counters& counters;
  ConnectionTable& table;
  KnownPeers& known_peers;
  Sender& sender;
  Owner& owner;
};

// One side of what a connection manager does: the operations and messages that belong together. A role
// carries out operations of the owner and receives messages by its handle() functions. Roles do not know one
// another; what two of them need lies below both, in the parts and here.
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

  // The connection of a message that names both IDs, and comes from where it should. Null is counted.
  Connection* of_peer(LocalId id, uint32_t remote_id, const ReceiverReport& receipt);
  // The first answer to a request of ours, which names its ID. If it came from UDP port 4791, the connection
  // and its host have to go on so. Later messages say it of the connection alone: by then our client knows
  // both IDs, and could have somebody at a host with an adapter name them, to make that host unheard.
  void note_port_of_answer(Connection& connection, const ReceiverReport& receipt);
  // Whether the peer's QP is of a connection that stands on our side. It cannot be of two: the peer has lost
  // the old one, which therefore ends (IBTA volume 1, 12.9.8.3.1), unless another program of its host says
  // so.
  // @param is_active whether the peer's QP is of a REP, and of a REQ otherwise
  bool is_stale(uint32_t remote_qpn, bool is_active, const ReceiverReport& receipt);

  const ManagerConfig& config_;
  Counters& counters_;
  ConnectionTable& table_;
  KnownPeers& known_peers_;
  Sender& sender_;
  Owner& owner_;
};

}  // namespace verbena::cm
