// SPDX-License-Identifier: Apache-2.0
#include "cm/manager_send.h"
#include "cm/timeouts.h"

namespace verbena::cm {

Result<LocalId> Manager::sidr_request(const SidrRequestParameters& parameters, uint64_t context,
                                      TimePoint now) {
  SidrReq req;
  if (!put(parameters.private_data, req.private_data)) return fail(EINVAL);
  Connection& connection = create(context, parameters.path);
  connection.info.is_active = true;
  connection.info.pkey = parameters.pkey;
  connection.info.max_cm_retries = parameters.max_cm_retries;
  connection.service_id = parameters.service_id;
  connection.timeout = 2 * time_of(parameters.packet_life_time) + time_of(parameters.remote_response_timeout);
  connection.transaction = new_transaction(connection);
  req.request_id = connection.info.local_id;
  req.pkey = parameters.pkey;
  req.service_id = parameters.service_id;
  enter(connection, State::kSidrReqSent);
  send_until_answered(connection, req, now);
  return connection.info.local_id;
}

void Manager::handle(const SidrReq& req, const Receipt& receipt) {
  const roce::Address& peer = receipt.arrival.path.source;
  if (Connection* const known = sidr_requests_.find({peer, req.request_id})) {
    ++counters_.duplicates[static_cast<size_t>(MessageType::kSidrReq)];
    if (known->lingers) send_again(*known);
    return;
  }
  const Admission admission = admit(req, receipt);
  if (admission.verdict == Admission::kIgnore) return;
  if (admission.verdict == Admission::kRefuse) {
    SidrRep rep;
    rep.request_id = req.request_id;
    rep.status = admission.sidr_status;
    rep.service_id = req.service_id;
    answer(rep, receipt);
    return;
  }
  Connection& connection = create(admission.context, answer_path(receipt.arrival.path));
  connection.info.remote_id = req.request_id;
  connection.info.pkey = req.pkey;
  connection.service_id = req.service_id;
  connection.transaction = receipt.transaction;
  enter(connection, State::kSidrReqReceived);
  sidr_requests_.insert(connection);
  connection.in_sidr_requests = true;
  handler_.on_sidr_request(connection.info.local_id, connection.info.context, req, receipt.arrival);
}

Result<void> Manager::sidr_reply(LocalId id, const SidrReplyParameters& parameters, TimePoint now) {
  const auto connection = find_in(id, {State::kSidrReqReceived});
  if (!connection) return tl::unexpected(connection.error());
  if (parameters.info.size() > SidrRep{}.info.size() ||
      parameters.private_data.size() > SidrRep{}.private_data.size()) {
    return fail(EINVAL);
  }
  send_sidr_rep(**connection, parameters, now);
  return {};
}

void Manager::send_sidr_rep(Connection& connection, const SidrReplyParameters& parameters, TimePoint now) {
  SidrRep rep;
  rep.request_id = connection.info.remote_id;
  rep.status = parameters.status;
  rep.info_length = static_cast<uint8_t>(parameters.info.size());
  rep.ece = parameters.ece;
  rep.qpn = parameters.qpn;
  rep.service_id = connection.service_id;
  rep.qkey = parameters.qkey;
  put(parameters.info, rep.info);
  put(parameters.private_data, rep.private_data);
  send_and_keep(connection, rep);
  linger(connection, now);
}

void Manager::handle(const SidrRep& rep, const Receipt& receipt) {
  Connection* const connection = find(rep.request_id);
  if (connection == nullptr) {
    drop(DropReason::kUnknownConnection);
  } else if (connection->info.path.destination != receipt.arrival.path.source) {
    drop(DropReason::kWrongPeer);
  } else if (connection->info.state != State::kSidrReqSent) {
    ++counters_.duplicates[static_cast<size_t>(MessageType::kSidrRep)];
  } else {
    enter(*connection, State::kIdle);
    connection->last.kept = false;
    if (tell(*connection)) {
      handler_.on_sidr_reply(connection->info.local_id, connection->info.context, rep);
    }
  }
}

}  // namespace verbena::cm
