// SPDX-License-Identifier: Apache-2.0
#include <cerrno>

#include "management/cm/manager.h"

namespace verbena::cm {

void Manager::send_drep(Connection& connection, ConstBytes private_data, TimePoint now) {
  auto drep = message_of<Drep>(connection);
  put(private_data, drep.private_data);
  sender_.send_and_keep(connection, drep);
  table_.enter_time_wait(connection, now);
}

Result<void> Manager::disconnect(LocalId id, ConstBytes private_data, TimePoint now) {
  const auto connection = table_.find_owned(id, {State::kEstablished});
  if (!connection) return tl::unexpected(connection.error());
  if (private_data.size() > Dreq{}.private_data.size()) return fail(EINVAL);
  sender_.send_dreq(**connection, private_data, now);
  return {};
}

Result<void> Manager::confirm_disconnect(LocalId id, ConstBytes private_data, TimePoint now) {
  const auto connection = table_.find_owned(id, {State::kDreqReceived});
  if (!connection) return tl::unexpected(connection.error());
  if (private_data.size() > Drep{}.private_data.size()) return fail(EINVAL);
  send_drep(**connection, private_data, now);
  return {};
}

void Manager::answer_drep(const Dreq& dreq, const Incoming& incoming) {
  Drep drep;
  drep.local_id = dreq.remote_id;
  drep.remote_id = dreq.local_id;
  sender_.answer(drep, incoming);
}

void Manager::handle(const Dreq& dreq, const Incoming& incoming) {
  Connection* const connection = of_peer(dreq.remote_id, dreq.local_id, incoming);
  if (connection == nullptr) {
    // Unknown connection: the peer gets an answer nevertheless, as from the kernel, and need not wait. A host
    // that guesses other hosts' IDs gets none.
    const bool is_unknown = table_.find(dreq.remote_id) == nullptr;
    if (is_unknown && !may_restore(dreq.remote_qpn, incoming)) answer_drep(dreq, incoming);
  } else if (connection->info.state == State::kIdle) {
    answer_drep(dreq, incoming);
  } else if (connection->info.local_qpn != dreq.remote_qpn) {
    drop(DropReason::kWrongPeer);
  } else {
    accept(dreq, *connection, incoming);
  }
}

void Manager::accept(const Dreq& dreq, Connection& connection, const Incoming& incoming) {
  switch (connection.info.state) {
    case State::kRepSent:  // the RTU was lost, and the peer ends the connection before we knew it as
                           // established
    case State::kMraRepReceived:
    case State::kEstablished:
      table_.enter(connection, State::kDreqReceived);
      connection.transaction = incoming.transaction;
      connection.last.kept = false;
      break;
    case State::kDreqSent:  // both sides disconnect at once: our DREQ already implies the owner's consent
      connection.transaction = incoming.transaction;
      send_drep(connection, {}, incoming.now);
      break;
    case State::kTimeWait:
      count_duplicate(MessageType::kDreq);
      if (connection.last.kept && connection.last.type == MessageType::kDrep) {
        sender_.send_again(connection);
      } else {
        answer_drep(dreq, incoming);
      }
      return;
    case State::kDreqReceived:
      count_duplicate(MessageType::kDreq);
      return;
    default:
      drop(DropReason::kUnexpected);
      return;
  }
  tell(connection, &Handler::on_disconnect_request, dreq);
}

void Manager::handle(const Drep& drep, const Incoming& incoming) {
  Connection* const connection = of_peer(drep.remote_id, drep.local_id, incoming);
  if (connection == nullptr) return;
  if (connection->info.state != State::kDreqSent) return count_duplicate(MessageType::kDrep);
  table_.enter_time_wait(*connection, incoming.now);
  tell(*connection, &Handler::on_disconnected, &drep);
}

// An XRC target's QP outlives the program that created it, so the peer gets no DREQ, as in the kernel.
void Manager::abandon_established(Connection& connection, TimePoint now) {
  switch (connection.info.state) {
    case State::kEstablished:
      if (connection.info.qp_type == QpType::kXrcTarget) {
        table_.enter(connection, State::kIdle);
      } else {
        sender_.send_dreq(connection, {}, now);
      }
      break;
    case State::kDreqReceived:
      send_drep(connection, {}, now);
      break;
    default:  // the peer expects nothing, or gets it already
      break;
  }
}

void Manager::give_up_disconnect(Connection& connection, TimePoint now) {
  table_.enter_time_wait(connection, now);
  tell(connection, &Handler::on_disconnected, nullptr);
}

}  // namespace verbena::cm
