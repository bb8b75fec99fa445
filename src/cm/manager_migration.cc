// SPDX-License-Identifier: Apache-2.0
#include "cm/manager_send.h"
#include "cm/timeouts.h"

namespace verbena::cm {

Result<void> Manager::load_alternate_path(LocalId id, const PathFields& path, ConstBytes private_data,
                                          TimePoint now) {
  const auto found = find_in(id, {State::kEstablished});
  if (!found) return tl::unexpected(found.error());
  Connection& connection = **found;
  if (!connection.info.is_active || connection.lap != LapState::kNone) return fail(EINVAL);
  Lap lap;
  if (!put(private_data, lap.private_data)) return fail(EINVAL);
  lap.local_id = connection.info.local_id;
  lap.remote_id = connection.info.remote_id;
  lap.remote_qpn = connection.info.remote_qpn;
  lap.remote_response_timeout = connection.info.peer_response_timeout;
  lap.alternate = path;
  connection.transaction = new_transaction(connection);
  connection.lap = LapState::kSent;
  send_until_answered(connection, lap, now);
  return {};
}

void Manager::handle(const Lap& lap, const Receipt& receipt) {
  Apr apr;
  apr.local_id = lap.remote_id;
  apr.remote_id = lap.local_id;
  Connection* const connection = of_peer(lap.remote_id, lap.local_id, receipt.arrival);
  if (connection == nullptr || connection->info.state != State::kEstablished) {
    apr.status = AprStatus::kInvalidCommunicationId;
    answer(apr, receipt);
  } else if (connection->info.local_qpn != lap.remote_qpn) {
    drop(DropReason::kWrongPeer);
    apr.status = AprStatus::kInvalidQpn;
    answer(apr, receipt);
  } else if (!config_.alternate_paths || connection->info.is_active) {
    apr.status = config_.alternate_paths ? AprStatus::kRejected : AprStatus::kUnsupported;
    answer(apr, receipt);
  } else if (connection->lap == LapState::kNone) {
    connection->lap = LapState::kReceived;
    connection->transaction = receipt.transaction;
    connection->last.kept = false;
    if (tell(*connection)) {
      handler_.on_alternate_path(connection->info.local_id, connection->info.context, lap);
    }
  } else {
    ++counters_.duplicates[static_cast<size_t>(MessageType::kLap)];
    if (connection->lap == LapState::kMraSent) send_again(*connection);
  }
}

Result<void> Manager::answer_alternate_path(LocalId id, AprStatus status, ConstBytes info,
                                            ConstBytes private_data, TimePoint) {
  const auto found = find_in(id, {State::kEstablished});
  if (!found) return tl::unexpected(found.error());
  Connection& connection = **found;
  if (connection.lap != LapState::kReceived && connection.lap != LapState::kMraSent) return fail(EINVAL);
  Apr apr;
  if (!put(info, apr.info) || !put(private_data, apr.private_data)) return fail(EINVAL);
  apr.local_id = connection.info.local_id;
  apr.remote_id = connection.info.remote_id;
  apr.info_length = static_cast<uint8_t>(info.size());
  apr.status = status;
  connection.lap = LapState::kNone;
  send_and_keep(connection, apr);
  return {};
}

void Manager::handle(const Apr& apr, const Receipt& receipt) {
  Connection* const connection = of_peer(apr.remote_id, apr.local_id, receipt.arrival);
  if (connection == nullptr) return;
  if (connection->lap != LapState::kSent && connection->lap != LapState::kMraReceived) {
    ++counters_.duplicates[static_cast<size_t>(MessageType::kApr)];
    return;
  }
  timers_.cancel(*connection);
  connection->lap = LapState::kNone;
  connection->last.kept = false;
  if (tell(*connection)) {
    handler_.on_alternate_path_answer(connection->info.local_id, connection->info.context, apr);
  }
}

}  // namespace verbena::cm
