// SPDX-License-Identifier: Apache-2.0
#include "cm/manager_send.h"

namespace verbena::cm {

void Manager::send_dreq(Connection& connection, ConstBytes private_data, TimePoint now) {
  Dreq dreq;
  dreq.local_id = connection.info.local_id;
  dreq.remote_id = connection.info.remote_id;
  dreq.remote_qpn = connection.info.remote_qpn;
  put(private_data, dreq.private_data);
  connection.transaction = new_transaction(connection);
  enter(connection, State::kDreqSent);
  send_until_answered(connection, dreq, now);
}

void Manager::send_drep(Connection& connection, ConstBytes private_data, TimePoint now) {
  Drep drep;
  drep.local_id = connection.info.local_id;
  drep.remote_id = connection.info.remote_id;
  put(private_data, drep.private_data);
  send_and_keep(connection, drep);
  enter_time_wait(connection, now);
}

Result<void> Manager::disconnect(LocalId id, ConstBytes private_data, TimePoint now) {
  const auto connection = find_in(id, {State::kEstablished});
  if (!connection) return tl::unexpected(connection.error());
  if (private_data.size() > Dreq{}.private_data.size()) return fail(EINVAL);
  send_dreq(**connection, private_data, now);
  return {};
}

Result<void> Manager::confirm_disconnect(LocalId id, ConstBytes private_data, TimePoint now) {
  const auto connection = find_in(id, {State::kDreqReceived});
  if (!connection) return tl::unexpected(connection.error());
  if (private_data.size() > Drep{}.private_data.size()) return fail(EINVAL);
  send_drep(**connection, private_data, now);
  return {};
}

void Manager::answer_drep(const Dreq& dreq, const Receipt& receipt) {
  Drep drep;
  drep.local_id = dreq.remote_id;
  drep.remote_id = dreq.local_id;
  answer(drep, receipt);
}

void Manager::handle(const Dreq& dreq, const Receipt& receipt) {
  Connection* const connection = of_peer(dreq.remote_id, dreq.local_id, receipt.arrival);
  if (connection == nullptr) {
    // Never heard of: the peer shall not wait for an answer, as the kernel has it. But whoever guesses at the
    // IDs of others gets none.
    const bool is_unknown = find(dreq.remote_id) == nullptr;
    if (is_unknown && !may_return(dreq.remote_qpn, receipt)) answer_drep(dreq, receipt);
  } else if (connection->info.state == State::kIdle) {
    answer_drep(dreq, receipt);
  } else if (connection->info.local_qpn != dreq.remote_qpn) {
    drop(DropReason::kWrongPeer);
  } else {
    take(dreq, *connection, receipt);
  }
}

void Manager::take(const Dreq& dreq, Connection& connection, const Receipt& receipt) {
  switch (connection.info.state) {
    case State::kRepSent:  // the RTU is lost, and the connection over before we knew of it
    case State::kMraRepReceived:
    case State::kEstablished:
      enter(connection, State::kDreqReceived);
      connection.transaction = receipt.transaction;
      connection.last.kept = false;
      break;
    case State::kDreqSent:  // both at once: ours says already that its owner agrees
      connection.transaction = receipt.transaction;
      send_drep(connection, {}, receipt.now);
      break;
    case State::kTimeWait:
      ++counters_.duplicates[static_cast<size_t>(MessageType::kDreq)];
      if (connection.last.kept && connection.last.type == MessageType::kDrep) {
        send_again(connection);
      } else {
        answer_drep(dreq, receipt);
      }
      return;
    case State::kDreqReceived:
      ++counters_.duplicates[static_cast<size_t>(MessageType::kDreq)];
      return;
    default:
      drop(DropReason::kUnexpected);
      return;
  }
  if (tell(connection)) {
    handler_.on_disconnect_request(connection.info.local_id, connection.info.context, dreq);
  }
}

void Manager::handle(const Drep& drep, const Receipt& receipt) {
  Connection* const connection = of_peer(drep.remote_id, drep.local_id, receipt.arrival);
  if (connection == nullptr) return;
  if (connection->info.state != State::kDreqSent) {
    ++counters_.duplicates[static_cast<size_t>(MessageType::kDrep)];
    return;
  }
  enter_time_wait(*connection, receipt.now);
  if (tell(*connection)) {
    handler_.on_disconnected(connection->info.local_id, connection->info.context, &drep);
  }
}

Result<void> Manager::destroy(LocalId id, TimePoint now) {
  Connection* const connection = find(id);
  if (connection == nullptr || !connection->has_owner) return fail(ENOENT);
  connection->has_owner = false;
  switch (connection->info.state) {
    case State::kReqSent:
    case State::kMraReqReceived:
      send_timeout_rej(*connection);
      enter(*connection, State::kIdle);
      break;
    case State::kReqReceived:
    case State::kMraReqSent:
    case State::kRepSent:
    case State::kMraRepReceived:
    case State::kRepReceived:
    case State::kMraRepSent:
      reject_in_state(*connection, because(RejReason::kConsumer), now);
      break;
    case State::kEstablished:
      if (connection->info.qp_type == QpType::kXrcTarget) {  // the QP outlives whoever made it
        enter(*connection, State::kIdle);
      } else {
        send_dreq(*connection, {}, now);
      }
      break;
    case State::kDreqReceived:
      send_drep(*connection, {}, now);
      break;
    case State::kSidrReqSent:
      enter(*connection, State::kIdle);
      break;
    case State::kSidrReqReceived: {
      SidrReply refused;
      refused.status = SidrStatus::kRejected;
      send_sidr_rep(*connection, refused, now);
      break;
    }
    case State::kIdle:
    case State::kDreqSent:
    case State::kTimeWait:
      break;
  }
  release_if_done(*connection);
  return {};
}

Result<void> Manager::forget(LocalId id) {
  Connection* const connection = find(id);
  if (connection == nullptr || !connection->has_owner) return fail(ENOENT);
  release(*connection);
  return {};
}

}  // namespace verbena::cm
