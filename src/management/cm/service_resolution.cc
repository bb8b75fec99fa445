// SPDX-License-Identifier: Apache-2.0
#include <cerrno>

#include "management/cm/manager.h"
#include "management/cm/parameters.h"

namespace verbena::cm {

Result<LocalId> Manager::sidr_request(const SidrRequest& request, uint64_t context, TimePoint now) {
  SidrReq req;
  if (!say(request.parameters, req)) return fail(EINVAL);
  Connection& connection = table_.create(context, request.path, request.account);
  connection.info.is_active = true;
  connection.info.pkey = request.pkey;
  connection.info.max_cm_retries = request.max_cm_retries;
  connection.timeout = config_.answer_time(request.packet_life_time, request.remote_response_timeout);
  sender_.begin_transaction(connection);
  req.request_id = connection.info.local_id;
  req.pkey = request.pkey;
  req.service_id = request.service_id;
  table_.enter(connection, State::kSidrReqSent);
  sender_.send_until_answered(connection, req, now);
  return connection.info.local_id;
}

void Manager::handle(const SidrReq& req, const Incoming& incoming) {
  if (Connection* const known = table_.find_sidr_request({incoming.peer(), req.request_id})) {
    count_duplicate(MessageType::kSidrReq);
    if (known->lingers) sender_.send_again(*known);
    if (kAwaitsOwner.has(known->info.state)) table_.await_owner(*known, incoming.now);
    return;
  }
  const Admission admission = admit(req, incoming);
  if (admission.verdict == Admission::kRefuse) {
    SidrRep rep;
    rep.request_id = req.request_id;
    rep.status = admission.sidr_status;
    rep.service_id = req.service_id;
    sender_.answer(rep, incoming);
  }
  if (admission.verdict != Admission::kAdmit) return;
  Connection& connection =
      table_.create(admission.context, answer_path(incoming.arrival.path), admission.account);
  connection.info.remote_id = req.request_id;
  connection.info.pkey = req.pkey;
  connection.service_id = req.service_id;
  connection.transaction = incoming.transaction;
  table_.enter(connection, State::kSidrReqReceived);
  table_.insert_sidr_request(connection);
  table_.await_owner(connection, incoming.now);
  tell(connection, &Handler::on_sidr_request, req, incoming.arrival);
}

Result<void> Manager::sidr_reply(LocalId id, const SidrReply& reply, TimePoint now) {
  const auto connection = table_.find_owned(id, {State::kSidrReqReceived});
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
  sender_.send_and_keep(connection, rep);
  table_.linger(connection, now);
}

void Manager::handle(const SidrRep& rep, const Incoming& incoming) {
  Connection* const connection = table_.find(rep.request_id);
  if (connection == nullptr) {
    drop(DropReason::kUnknownConnection);
  } else if (connection->info.path.destination != incoming.peer()) {
    drop(DropReason::kWrongPeer);
  } else if (connection->info.state != State::kSidrReqSent) {
    count_duplicate(MessageType::kSidrRep);
  } else {
    note_port_of_answer(*connection, incoming);
    table_.enter(*connection, State::kIdle);
    connection->last.kept = false;
    tell(*connection, &Handler::on_sidr_reply, rep);
  }
}

void Manager::abandon_resolution(Connection& connection, TimePoint now) {
  if (connection.info.state == State::kSidrReqSent) return table_.enter(connection, State::kIdle);
  SidrReply refused;
  refused.status = SidrStatus::kRejected;
  send_sidr_rep(connection, refused, now);
}

}  // namespace verbena::cm
