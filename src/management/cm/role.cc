// SPDX-License-Identifier: Apache-2.0
#include "management/cm/roles.h"

namespace verbena::cm {

Connection* Role::of_peer(LocalId id, uint32_t remote_id, const Incoming& incoming) {
  Connection* const connection = table_.find(id);
  if (connection == nullptr) {
    drop(DropReason::kUnknownConnection);
    return nullptr;
  }
  if (connection->info.path.destination != incoming.peer() || connection->info.remote_id != remote_id) {
    drop(DropReason::kWrongPeer);
    return nullptr;
  }
  known_peers_.has_answered(incoming.peer(), incoming.now);
  if (incoming.arrival.from_roce_port) connection->info.peer_has_roce_port = true;
  return connection;
}

void Role::note_port_of_answer(Connection& connection, const Incoming& incoming) {
  if (!incoming.arrival.from_roce_port) return;
  connection.info.peer_has_roce_port = true;
  known_peers_.has_answered_from_roce_port(incoming.peer(), incoming.now);
}

bool Role::is_stale(uint32_t remote_qpn, bool is_active, const Incoming& incoming) {
  Connection* const old = table_.find_by_remote_qpn(
      ByRemoteQpn::key(incoming.arrival.path.destination, incoming.peer(), remote_qpn, is_active));
  if (old == nullptr) return false;
  if (is_from_other_port(*old, incoming)) {
    drop(DropReason::kWrongPeer);
    return true;
  }
  ++counters_.stale_connections;
  if (old->info.state == State::kEstablished) sender_.send_dreq(*old, {}, incoming.now);
  return true;
}

}  // namespace verbena::cm
