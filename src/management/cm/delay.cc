// SPDX-License-Identifier: Apache-2.0
#include <cerrno>

#include "management/cm/manager.h"

namespace verbena::cm {

Result<void> Manager::delay(LocalId id, uint8_t service_timeout, MraTime when, ConstBytes private_data,
                            TimePoint now) {
  const auto found = table_.find_owned(id, {State::kReqReceived, State::kRepReceived});
  if (!found) return tl::unexpected(found.error());
  Connection& connection = **found;
  auto mra = message_of<Mra>(connection);
  if (!put(private_data, mra.private_data)) return fail(EINVAL);
  mra.service_timeout = service_timeout & 31;
  if (connection.info.state == State::kReqReceived) {
    mra.delayed = Answered::kReq;
    table_.enter(connection, State::kMraReqSent);
    table_.await_owner(connection, now);
  } else {
    mra.delayed = Answered::kRep;
    table_.enter(connection, State::kMraRepSent);
  }
  connection.last = {encode(mra, connection.transaction), true, MessageType::kMra};
  if (when == MraTime::kNow) sender_.send_again(connection);
  return {};
}

// The answer will be late: delays our next retransmission by the MRA's time plus a packet's. Only once per
// request, or a peer could make us wait without limit.
void Manager::handle(const Mra& mra, const Incoming& incoming) {
  Connection* const connection = table_.find(mra.remote_id);
  if (connection == nullptr) return drop(DropReason::kUnknownConnection);
  const ConnectionInfo& info = connection->info;
  if (info.path.destination != incoming.peer() || (info.remote_id != 0 && info.remote_id != mra.local_id)) {
    return drop(DropReason::kWrongPeer);
  }
  if (!enter_delayed(*connection, mra.delayed)) {
    const bool again = info.state == State::kMraReqReceived || info.state == State::kMraRepReceived;
    return again ? count_duplicate(MessageType::kMra) : drop(DropReason::kUnexpected);
  }
  known_peers_.has_answered(incoming.peer(), incoming.now);
  const Duration each = config_.service_time(mra.service_timeout) + config_.answer_time(info.ack_timeout);
  sender_.wait_for(*connection, each, connection->retries_left, incoming.now);
  tell(*connection, &Handler::on_delay, mra);
}

// False if no message of ours is pending that the peer could delay.
bool Manager::enter_delayed(Connection& connection, Answered delayed) {
  const State state = connection.info.state;
  if (state == State::kReqSent && delayed == Answered::kReq) {
    table_.enter(connection, State::kMraReqReceived);
  } else if (state == State::kRepSent && delayed == Answered::kRep) {
    table_.enter(connection, State::kMraRepReceived);
  } else {
    return false;
  }
  return true;
}

}  // namespace verbena::cm
