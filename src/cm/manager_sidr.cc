// SPDX-License-Identifier: Apache-2.0
#include "cm/manager_send.h"
#include "cm/timeouts.h"

namespace verbena::cm {

Result<LocalId> Manager::sidr_request(const SidrRequest& request, uint64_t context, TimePoint now) {
  SidrReq req;
  if (!say(request.parameters, req)) return fail(EINVAL);
  Connection& connection = create(context, request.path);
  connection.info.is_active = true;
  connection.info.pkey = request.pkey;
  connection.info.max_cm_retries = request.max_cm_retries;
  connection.service_id = request.service_id;
  connection.timeout = 2 * time_of(request.packet_life_time) + time_of(request.remote_response_timeout);
  connection.transaction = new_transaction(connection);
  req.request_id = connection.info.local_id;
  req.pkey = request.pkey;
  req.service_id = request.service_id;
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
  if (admission.verdict == Admission::kRefuse) {
    SidrRep rep;
    rep.request_id = req.request_id;
    rep.status = admission.sidr_status;
    rep.service_id = req.service_id;
    answer(rep, receipt);
  }
  if (admission.verdict != Admission::kAdmit) return;
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

Result<void> Manager::sidr_reply(LocalId id, const SidrReply& reply, TimePoint now) {
  const auto connection = find_in(id, {State::kSidrReqReceived});
  if (!connection) return tl::unexpected(connection.error());
  if (reply.info.size() > SidrRep{}.info.size() ||
      reply.parameters.data().size() > SidrRep{}.private_data.size()) {
    return fail(EINVAL);
  }
  send_sidr_rep(**connection, reply, now);
  return {};
}

void Manager::send_sidr_rep(Connection& connection, const SidrReply& reply, TimePoint now) {
  SidrRep rep;
  say(reply.parameters, rep);
  rep.request_id = connection.info.remote_id;
  rep.status = reply.status;
  rep.info_length = static_cast<uint8_t>(reply.info.size());
  rep.service_id = connection.service_id;
  put(reply.info, rep.info);
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
