// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>

#include "management/cm/manager.h"
#include "management/cm/parameters.h"

namespace verbena::cm {
namespace {

// LIDs have no meaning over RoCE; as in the kernel they are permissive if the hop limit allows routers.
PathFields path_fields(const ConnectRequest& request) {
  const bool is_local = request.path.hop_limit <= 1;
  PathFields fields;
  fields.local_lid = fields.remote_lid = is_local ? 0 : kPermissiveLid;
  fields.local_gid = request.path.source;
  fields.remote_gid = request.path.destination;
  fields.flow_label = request.path.flow_label & 0xfffff;
  fields.packet_rate = request.packet_rate;
  fields.traffic_class = request.path.traffic_class;
  fields.hop_limit = request.path.hop_limit;
  fields.subnet_local = is_local;
  fields.local_ack_timeout = ack_timeout(request.ack_delay, request.packet_life_time);
  return fields;
}

Req make_req(const ConnectRequest& request) {
  Req req;
  req.service_id = request.service_id;
  req.local_ca_guid = request.local_ca_guid;
  req.remote_response_timeout = request.remote_response_timeout;
  req.starting_psn = request.starting_psn;
  req.local_response_timeout = request.local_response_timeout;
  req.pkey = request.pkey;
  req.path_mtu = request.path_mtu;
  req.max_cm_retries = request.max_cm_retries;
  if (request.qp_type == QpType::kXrcInitiator) {
    req.transport = Transport::kExtended;
    req.extended_transport = kExtendedXrc;
  } else {
    req.transport = request.qp_type == QpType::kUc ? Transport::kUc : Transport::kRc;
  }
  req.primary = path_fields(request);
  return req;
}

void remember(const ConnectRequest& request, Connection& connection) {
  const ConnectionParameters& parameters = request.parameters;
  ConnectionInfo& info = connection.info;
  info.is_active = true;
  info.qp_type = request.qp_type;
  info.local_qpn = parameters.qpn & 0xffffff;
  info.receive_psn = request.starting_psn & 0xffffff;
  info.pkey = request.pkey;
  info.path_mtu = request.path_mtu;
  info.ack_timeout = static_cast<uint8_t>(std::min(request.packet_life_time + 1, 31));
  info.retry_count = std::min<uint8_t>(parameters.retry_count, 7);
  info.rnr_retry_count = std::min<uint8_t>(parameters.rnr_retry_count, 7);
  info.responder_resources = parameters.responder_resources;
  info.initiator_depth = parameters.initiator_depth;
  info.peer_response_timeout = request.remote_response_timeout;
  info.max_cm_retries = request.max_cm_retries & 15;
  connection.local_ca_guid = request.local_ca_guid;
}

}  // namespace

Result<LocalId> Manager::connect(const ConnectRequest& request, uint64_t context, TimePoint now) {
  if (request.qp_type == QpType::kXrcTarget) return fail(EINVAL);
  Req req = make_req(request);
  if (!say(request.parameters, req)) return fail(EINVAL);
  Connection& connection = table_.create(context, request.path, request.account);
  req.local_id = connection.info.local_id;
  remember(request, connection);
  connection.timeout = config_.answer_time(request.packet_life_time, request.remote_response_timeout);
  sender_.begin_transaction(connection);
  table_.enter(connection, State::kReqSent);
  sender_.send_until_answered(connection, req, now);
  return connection.info.local_id;
}

void Manager::handle(const Rep& rep, const Incoming& incoming) {
  Connection* const connection = table_.find(rep.remote_id);
  if (connection == nullptr) {
    // The connection is gone: our REQ reached the peer late. The REJ spares the peer its retransmissions.
    drop(DropReason::kUnknownConnection);
    sender_.answer_rej(rep.remote_id, rep.local_id, Answered::kRep,
                       because(RejReason::kInvalidCommunicationId), incoming);
    return;
  }
  if (connection->info.path.destination != incoming.peer()) return drop(DropReason::kWrongPeer);
  known_peers_.has_answered(incoming.peer(), incoming.now);
  if (kWaitsForRep.has(connection->info.state)) {
    accept(rep, *connection, incoming);
  } else {
    repeat_answer(rep, *connection, incoming);
  }
}

void Manager::accept(const Rep& rep, Connection& connection, const Incoming& incoming) {
  const ConnectionParameters answer = heard_in(rep, connection.info.qp_type == QpType::kXrcInitiator);
  if (table_.find_by_remote_id({incoming.peer(), rep.local_id}) != nullptr) {  // it is another connection's
    return drop(DropReason::kUnexpected);
  }
  if (is_stale(answer.qpn, true, incoming)) {
    sender_.answer_rej(connection.info.local_id, rep.local_id, Answered::kRep,
                       because(RejReason::kStaleConnection), incoming);
    return;
  }
  ConnectionInfo& info = connection.info;
  table_.enter(connection, State::kRepReceived);
  info.remote_id = rep.local_id;
  info.remote_qpn = answer.qpn;
  info.send_psn = rep.starting_psn;
  info.initiator_depth = answer.initiator_depth;
  info.responder_resources = answer.responder_resources;
  info.rnr_retry_count = answer.rnr_retry_count;
  info.ack_timeout = ack_timeout(rep.target_ack_delay, static_cast<uint8_t>(info.ack_timeout - 1));
  note_port_of_answer(connection, incoming);
  table_.insert_remote_numbers(connection);
  connection.last.kept = false;
  tell(connection, &Handler::on_reply, rep);
}

// Handles a duplicate REP, or a REP for a connection that has ended.
void Manager::repeat_answer(const Rep& rep, Connection& connection, const Incoming& incoming) {
  const ConnectionInfo& info = connection.info;
  const auto last_is = [&](MessageType type) {
    return connection.last.kept && connection.last.type == type && info.remote_id == rep.local_id;
  };
  if (info.state == State::kIdle) {
    if (last_is(MessageType::kRej)) {
      sender_.send_again(connection);
    } else {
      sender_.answer_rej(rep.remote_id, rep.local_id, Answered::kRep,
                         because(RejReason::kInvalidCommunicationId), incoming);
    }
    return;
  }
  if (info.remote_id != rep.local_id || !info.is_active) {
    return drop(DropReason::kWrongPeer);
  }
  count_duplicate(MessageType::kRep);
  if (info.state == State::kMraRepSent || (info.state == State::kEstablished && last_is(MessageType::kRtu))) {
    sender_.send_again(connection);
  } else if (info.state == State::kEstablished) {
    sender_.answer(message_of<Rtu>(connection), incoming);
  }
}

Result<void> Manager::ready(LocalId id, ConstBytes private_data, TimePoint) {
  const auto connection = table_.find_owned(id, {State::kRepReceived, State::kMraRepSent});
  if (!connection) return tl::unexpected(connection.error());
  auto rtu = message_of<Rtu>(**connection);
  if (!put(private_data, rtu.private_data)) return fail(EINVAL);
  table_.enter(**connection, State::kEstablished);
  sender_.send_and_keep(**connection, rtu);
  return {};
}

}  // namespace verbena::cm
