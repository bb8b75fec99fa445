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
  switch (connection->info.state) {
    case State::kReqSent:
    case State::kMraReqReceived:
    case State::kReqReceived:
    case State::kMraReqSent:
    case State::kRepSent:
    case State::kMraRepReceived:
      if (rej.is(RejReason::kStaleConnection)) {
        table_.enter_time_wait(*connection, incoming.now);
      } else {
        table_.enter(*connection, State::kIdle);
      }
      break;
    case State::kRepReceived:
    case State::kMraRepSent:
    case State::kEstablished:
      table_.enter_time_wait(*connection, incoming.now);
      break;
    case State::kDreqSent:
      table_.enter_time_wait(*connection, incoming.now);
      tell(*connection, &Handler::on_disconnected, nullptr);
      return;
    default:
      drop(DropReason::kUnexpected);
      return;
  }
  connection->last.kept = false;
  tell(*connection, &Handler::on_rejected, rej);
}

}  // namespace verbena::cm
