// SPDX-License-Identifier: Apache-2.0
#include "management/cm/role.h"

namespace verbena::cm {

Connection* Role::of_peer(LocalId id, uint32_t remote_id, const ReceiverReport& receipt) {
  Connection* const connection = table_.find(id);
  if (connection == nullptr) {
    drop(DropReason::kUnknownConnection);
    return nullptr;
  }
  if (connection->info.path.destination != receipt.peer() || connection->info.remote_id != remote_id) {
    drop(DropReason::kWrongPeer);
    return nullptr;
  }
  known_peers_.has_answered(receipt.peer(), receipt.now);
  if (receipt.arrival.from_roce_port) connection->info.peer_has_roce_port = true;
  return connection;
}

void Role::note_port_of_answer(Connection& connection, const ReceiverReport& receipt) {
  if (!receipt.arrival.from_roce_port) return;
  connection.info.peer_has_roce_port = true;
  known_peers_.has_answered_from_roce_port(receipt.peer(), receipt.now);
}

bool Role::is_stale(uint32_t remote_qpn, bool is_active, const ReceiverReport& receipt) {
  Connection* const old = table_.find_by_remote_qpn(
      ByRemoteQpn::key(receipt.arrival.path.destination, receipt.peer(), remote_qpn, is_active));
  if (old == nullptr) return false;
  if (is_from_other_port(*old, receipt)) {
    drop(DropReason::kWrongPeer);
    return true;
  }
  ++counters_.stale_connections;
  if (old->info.state == State::kEstablished) sender_.send_dreq(*old, {}, receipt.now);
  return true;
}

}  // namespace verbena::cm
