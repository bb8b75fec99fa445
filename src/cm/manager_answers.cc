// SPDX-License-Identifier: Apache-2.0
#include "cm/manager_send.h"
#include "cm/timeouts.h"

// MRA and REJ: what either side may say to the other's REQ or REP.

namespace verbena::cm {
namespace {

constexpr uint8_t kRejRepetitions = 3;

}  // namespace

Result<void> Manager::delay(LocalId id, uint8_t service_timeout, MraTime when, ConstBytes private_data,
                            TimePoint) {
  const auto found = find_in(id, {State::kReqReceived, State::kRepReceived, State::kEstablished});
  if (!found) return tl::unexpected(found.error());
  Connection& connection = **found;
  const State state = connection.info.state;
  if (state == State::kEstablished && connection.lap != LapState::kReceived) return fail(EINVAL);
  Mra mra;
  if (!put(private_data, mra.private_data)) return fail(EINVAL);
  mra.local_id = connection.info.local_id;
  mra.remote_id = connection.info.remote_id;
  mra.service_timeout = service_timeout & 31;
  if (state == State::kReqReceived) {
    mra.delayed = Answered::kReq;
    enter(connection, State::kMraReqSent);
  } else if (state == State::kRepReceived) {
    mra.delayed = Answered::kRep;
    enter(connection, State::kMraRepSent);
  } else {
    mra.delayed = Answered::kOther;
    connection.lap = LapState::kMraSent;
  }
  connection.last = {encode(mra, connection.transaction), true, MessageType::kMra};
  if (when == MraTime::kNow) send_again(connection);
  return {};
}

// The answer will be late: our next repetition waits for as long as the peer says and a packet takes. Once
// only, as otherwise a peer could hold us for ever.
void Manager::handle(const Mra& mra, const Receipt& receipt) {
  Connection* const connection = find(mra.remote_id);
  if (connection == nullptr) {
    drop(DropReason::kUnknownConnection);
    return;
  }
  ConnectionInfo& info = connection->info;
  if (info.path.destination != receipt.arrival.path.source ||
      (info.remote_id != 0 && info.remote_id != mra.local_id)) {
    drop(DropReason::kWrongPeer);
    return;
  }
  const Duration patience =
      time_of(std::min(mra.service_timeout, config_.longest_service_timeout)) + at_most(info.ack_timeout);
  if (info.state == State::kReqSent && mra.delayed == Answered::kReq) {
    enter(*connection, State::kMraReqReceived);
  } else if (info.state == State::kRepSent && mra.delayed == Answered::kRep) {
    enter(*connection, State::kMraRepReceived);
  } else if (connection->lap == LapState::kSent && mra.delayed == Answered::kOther) {
    connection->lap = LapState::kMraReceived;
  } else {
    const bool again = info.state == State::kMraReqReceived || info.state == State::kMraRepReceived ||
                       connection->lap == LapState::kMraReceived;
    if (again) {
      ++counters_.duplicates[static_cast<size_t>(MessageType::kMra)];
    } else {
      drop(DropReason::kUnexpected);
    }
    return;
  }
  connection->repeat_after = patience;
  timers_.set(*connection, receipt.now + patience);
  if (tell(*connection)) handler_.on_delay(info.local_id, info.context, mra);
}

Result<void> Manager::reject(LocalId id, const RejectParameters& parameters, TimePoint now) {
  const auto connection = find_in(id, kRejectable);
  if (!connection) return tl::unexpected(connection.error());
  if (parameters.ari.size() > Rej{}.ari.size() ||
      parameters.private_data.size() > Rej{}.private_data.size()) {
    return fail(EINVAL);
  }
  reject_in_state(**connection, parameters, now);
  return {};
}

// A REQ's sender who has not heard the REJ repeats the REQ, and is answered again. A REP's may take the
// connection for established, and have no reason to say anything: so the REJ is repeated by itself, through
// TIMEWAIT.
void Manager::reject_in_state(Connection& connection, const RejectParameters& why, TimePoint now) {
  send_rej(connection, why);
  switch (connection.info.state) {
    case State::kReqReceived:
    case State::kMraReqSent:
      linger(connection, now);
      break;
    case State::kRepSent:
    case State::kMraRepReceived:
      enter_time_wait(connection, now);
      connection.retries_left = kRejRepetitions;
      connection.repeat_after = at_most(connection.info.ack_timeout) / (kRejRepetitions + 1);
      timers_.set(connection, now + connection.repeat_after);
      break;
    default:
      enter(connection, State::kIdle);
      break;
  }
}

// A REJ names our ID, except when its sender timed out before it knew it; then theirs must do.
Connection* Manager::rejected_by(const Rej& rej, const Arrival& arrival) {
  const roce::Address& peer = arrival.path.source;
  Connection* const connection =
      rej.remote_id != 0 ? find(rej.remote_id) : by_remote_id_.find({peer, rej.local_id});
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

void Manager::handle(const Rej& rej, const Receipt& receipt) {
  Connection* const connection = rejected_by(rej, receipt.arrival);
  if (connection == nullptr) return;
  ConnectionInfo& info = connection->info;
  switch (info.state) {
    case State::kReqSent:
    case State::kMraReqReceived:
    case State::kReqReceived:
    case State::kMraReqSent:
    case State::kRepSent:
    case State::kMraRepReceived:
      if (rej.is(RejReason::kStaleConnection)) {
        enter_time_wait(*connection, receipt.now);
      } else {
        enter(*connection, State::kIdle);
      }
      break;
    case State::kRepReceived:
    case State::kMraRepSent:
    case State::kEstablished:
      enter_time_wait(*connection, receipt.now);
      break;
    case State::kDreqSent:
      enter_time_wait(*connection, receipt.now);
      if (tell(*connection)) handler_.on_disconnected(info.local_id, info.context, nullptr);
      return;
    default:
      drop(DropReason::kUnexpected);
      return;
  }
  connection->last.kept = false;
  if (tell(*connection)) handler_.on_rejected(info.local_id, info.context, rej);
}

}  // namespace verbena::cm
