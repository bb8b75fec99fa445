// SPDX-License-Identifier: Apache-2.0
#include <cerrno>

#include "management/cm/manager.h"

namespace verbena::cm {

Result<void> Manager::load_alternate_path(LocalId id, const PathFields& path, ConstBytes private_data,
                                          TimePoint now) {
  const auto found = table_.find_owned(id, {State::kEstablished});
  if (!found) return tl::unexpected(found.error());
  Connection& connection = **found;
  if (!connection.info.is_active || connection.lap != LapState::kNone) return fail(EINVAL);
  auto lap = message_of<Lap>(connection);
  if (!put(private_data, lap.private_data)) return fail(EINVAL);
  lap.remote_qpn = connection.info.remote_qpn;
  lap.remote_response_timeout = connection.info.peer_response_timeout;
  lap.alternate = path;
  sender_.begin_transaction(connection);
  connection.lap = LapState::kSent;
  sender_.send_until_answered(connection, lap, now);
  return {};
}

void Manager::handle(const Lap& lap, const Incoming& incoming) {
  Connection* const connection = of_peer(lap.remote_id, lap.local_id, incoming);
  if (connection == nullptr || connection->info.state != State::kEstablished) {
    refuse(lap, AprStatus::kInvalidCommunicationId, incoming);
  } else if (connection->info.local_qpn != lap.remote_qpn) {
    drop(DropReason::kWrongPeer);
    refuse(lap, AprStatus::kInvalidQpn, incoming);
  } else if (!config_.alternate_paths) {
    refuse(lap, AprStatus::kUnsupported, incoming);
  } else if (connection->info.is_active) {
    refuse(lap, AprStatus::kRejected, incoming);
  } else if (connection->lap == LapState::kNone) {
    connection->lap = LapState::kReceived;
    connection->transaction = incoming.transaction;
    connection->last.kept = false;
    tell(*connection, &Handler::on_alternate_path, lap);
  } else {
    count_duplicate(MessageType::kLap);
    if (connection->lap == LapState::kMraSent) sender_.send_again(*connection);
  }
}

void Manager::refuse(const Lap& lap, AprStatus status, const Incoming& incoming) {
  Apr apr;
  apr.local_id = lap.remote_id;
  apr.remote_id = lap.local_id;
  apr.status = status;
  sender_.answer(apr, incoming);
}

Result<void> Manager::answer_alternate_path(LocalId id, AprStatus status, ConstBytes info,
                                            ConstBytes private_data, TimePoint) {
  const auto found = table_.find_owned(id, {State::kEstablished});
  if (!found) return tl::unexpected(found.error());
  Connection& connection = **found;
  if (connection.lap != LapState::kReceived && connection.lap != LapState::kMraSent) return fail(EINVAL);
  auto apr = message_of<Apr>(connection);
  if (!put(info, apr.info) || !put(private_data, apr.private_data)) return fail(EINVAL);
  apr.info_length = static_cast<uint8_t>(info.size());
  apr.status = status;
  connection.lap = LapState::kNone;
  sender_.send_and_keep(connection, apr);
  return {};
}

void Manager::handle(const Apr& apr, const Incoming& incoming) {
  Connection* const connection = of_peer(apr.remote_id, apr.local_id, incoming);
  if (connection == nullptr) return;
  if (connection->lap != LapState::kSent && connection->lap != LapState::kMraReceived) {
    return count_duplicate(MessageType::kApr);
  }
  end_migration(*connection);
  tell(*connection, &Handler::on_alternate_path_answer, apr);
}

void Manager::give_up_migration(Connection& connection) {
  end_migration(connection);
  tell(connection, &Handler::on_unreachable, MessageType::kLap);
}

// Ends the migration, after which another LAP is possible.
void Manager::end_migration(Connection& connection) {
  table_.cancel_timer(connection);
  connection.lap = LapState::kNone;
  connection.last.kept = false;
}

}  // namespace verbena::cm
