// SPDX-License-Identifier: Apache-2.0
#include <cerrno>

#include "management/cm/manager.h"

namespace verbena::cm {

namespace {

constexpr uint8_t kRejRepetitions = 3;  // of a REJ without an answer

}  // namespace

Result<void> Manager::reject(LocalId id, const RejectParameters& parameters, TimePoint now) {
  const auto connection = table_.find_owned(id, kRejectable);
  if (!connection) return tl::unexpected(connection.error());
  if (parameters.ari.size() > Rej{}.ari.size() ||
      parameters.private_data.size() > Rej{}.private_data.size()) {
    return fail(EINVAL);
  }
  reject(**connection, parameters, now);
  return {};
}

// If a REJ to a REQ is lost, the peer repeats the REQ and is answered again. The sender of a REP may believe
// that the connection is established and stay silent, so that REJ is repeated by timer until TIMEWAIT is
// over.
void Manager::reject(Connection& connection, const RejectParameters& why, TimePoint now) {
  sender_.send_rej(connection, why);
  switch (connection.info.state) {
    case State::kReqReceived:
    case State::kMraReqSent:
      table_.linger(connection, now);
      break;
    case State::kRepSent:
    case State::kMraRepReceived:
      repeat_through_time_wait(connection, now);
      break;
    default:
      table_.enter(connection, State::kIdle);
      break;
  }
}

void Manager::repeat_through_time_wait(Connection& connection, TimePoint now) {
  table_.enter_time_wait(connection, now);
  connection.retries_left = kRejRepetitions;
  connection.repeat_after = config_.response_time(connection.info.ack_timeout) / (kRejRepetitions + 1);
  table_.set_timer(connection, now + connection.repeat_after);
}

// Rejects our own unanswered REQ with reason "timeout", like ib_destroy_cm_id().
void Manager::abandon_setup(Connection& connection, TimePoint now) {
  if (kWaitsForRep.has(connection.info.state)) {
    sender_.send_timeout_rej(connection, now);
    table_.enter(connection, State::kIdle);
  } else {
    reject(connection, because(RejReason::kConsumer), now);
  }
}

void Manager::give_up_setup(Connection& connection, TimePoint now) {
  const MessageType unanswered = connection.last.type;
  sender_.send_timeout_rej(connection, now);
  table_.enter(connection, State::kIdle);
  tell(connection, &Handler::on_unreachable, unanswered);
}

// A REJ names our ID, unless its sender gave up before it learned that; then its own ID identifies the
// connection.
Connection* Manager::rejected_by(const Rej& rej, const Incoming& incoming) {
  const roce::Address& peer = incoming.peer();
  Connection* const connection =
      rej.remote_id != 0 ? table_.find(rej.remote_id) : table_.find_by_remote_id({peer, rej.local_id});
  if (connection == nullptr) {
    drop(DropReason::kUnknownConnection);
    return nullptr;
  }
  const ConnectionInfo& info = connection->info;
  if (info.path.destination != peer || (info.remote_id != 0 && info.remote_id != rej.local_id)) {
    drop(DropReason::kWrongPeer);
    return nullptr;
  }
  return connection;
}

void Manager::handle(const Rej& rej, const Incoming& incoming) {
  Connection* const connection = rejected_by(rej, incoming);
  if (connection == nullptr) return;
  const State state = connection->info.state;
  if (state == State::kDreqSent) {
    table_.enter_time_wait(*connection, incoming.now);
    return tell(*connection, &Handler::on_disconnected, nullptr);
  }
  if (!kRejectable.has(state) && state != State::kEstablished) return drop(DropReason::kUnexpected);
  const bool knows_peers_qp =
      state == State::kRepReceived || state == State::kMraRepSent || state == State::kEstablished;
  if (knows_peers_qp || rej.is(RejReason::kStaleConnection)) {
    table_.enter_time_wait(*connection, incoming.now);
  } else {
    table_.enter(*connection, State::kIdle);
  }
  connection->last.kept = false;
  tell(*connection, &Handler::on_rejected, rej);
}

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

}  // namespace verbena::cm
