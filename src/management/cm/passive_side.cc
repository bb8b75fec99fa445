// SPDX-License-Identifier: Apache-2.0
#include <cerrno>

#include "management/cm/manager.h"
#include "management/cm/parameters.h"

namespace verbena::cm {
namespace {

QpType qp_type_of(const Req& req) {
  if (req.is_xrc()) return QpType::kXrcTarget;
  return req.transport == Transport::kUc ? QpType::kUc : QpType::kRc;
}

// Stores the REQ's fields from our view: the peer's local QPN is our remote QPN.
void remember(const Req& req, const Arrival& arrival, Connection& connection) {
  ConnectionInfo& info = connection.info;
  info.path = answer_path(arrival.path);
  info.path.flow_label = req.primary.flow_label;
  info.path.traffic_class = req.primary.traffic_class;
  info.remote_id = req.local_id;
  info.peer_has_roce_port = arrival.from_roce_port;
  info.qp_type = qp_type_of(req);
  info.remote_qpn = req.local_qpn;
  info.send_psn = req.starting_psn;
  info.pkey = req.pkey;
  info.path_mtu = req.path_mtu;
  info.ack_timeout = req.primary.local_ack_timeout;
  const ConnectionParameters asked = heard_in(req);
  info.retry_count = asked.retry_count;
  info.rnr_retry_count = asked.rnr_retry_count;
  info.initiator_depth = asked.initiator_depth;
  info.responder_resources = asked.responder_resources;
  info.peer_response_timeout = req.local_response_timeout;
  info.max_cm_retries = req.max_cm_retries;
}

// The reason to refuse a REQ that no listener could accept, if there is one.
std::optional<RejectParameters> refusal_of(const Req& req, const Arrival& arrival) {
  if (req.transport == Transport::kRd || (req.transport == Transport::kExtended && !req.is_xrc())) {
    return because(RejReason::kInvalidTransportServiceType);
  }
  if (req.path_mtu < 1 || req.path_mtu > 5) return because(RejReason::kInvalidPathMtu);
  // Answers go to the REQ's source address. A REQ that names another host would make us send there later.
  if (req.primary.local_gid != arrival.path.source || req.primary.remote_gid != arrival.path.destination) {
    RejectParameters why = because(RejReason::kInvalidGid);
    why.ari = std::as_bytes(std::span(arrival.path.destination.bytes));
    return why;
  }
  return std::nullopt;
}

}  // namespace

void Manager::handle(const Req& req, const Incoming& incoming) {
  if (Connection* const known = table_.find_by_remote_id({incoming.peer(), req.local_id})) {
    return repeat_answer(req, *known, incoming);
  }
  const auto refuse = [&](const RejectParameters& why) {
    sender_.answer_rej(0, req.local_id, Answered::kReq, why, incoming);
  };
  if (const auto why = refusal_of(req, incoming.arrival)) return refuse(*why);
  if (is_stale(req.local_qpn, false, incoming)) return refuse(because(RejReason::kStaleConnection));
  const Admission admission = admit(req, incoming);
  if (admission.verdict == Admission::kRefuse) {
    refuse(because(admission.reason));
  }
  if (admission.verdict != Admission::kAdmit) return;
  Connection& connection = table_.create(admission.context, incoming.arrival.path, admission.account);
  table_.enter(connection, State::kReqReceived);
  remember(req, incoming.arrival, connection);
  connection.transaction = incoming.transaction;
  connection.timeout = config_.answer_time(req.local_response_timeout);
  table_.insert_remote_numbers(connection);
  table_.await_owner(connection, incoming.now);
  tell(connection, &Handler::on_request, req, incoming.arrival);
}

// Answers a duplicate REQ with our earlier answer, if there was one.
void Manager::repeat_answer(const Req& req, Connection& connection, const Incoming& incoming) {
  count_duplicate(MessageType::kReq);
  if (kAwaitsOwner.has(connection.info.state)) table_.await_owner(connection, incoming.now);
  switch (connection.info.state) {
    case State::kMraReqSent:
    case State::kRepSent:
      sender_.send_again(connection);
      break;
    case State::kIdle:  // lingers
      if (connection.last.kept) sender_.send_again(connection);
      break;
    case State::kTimeWait:
      sender_.answer_rej(0, req.local_id, Answered::kReq, because(RejReason::kStaleConnection), incoming);
      break;
    default:
      break;
  }
}

Result<void> Manager::reply(LocalId id, const ConnectReply& reply, TimePoint now) {
  const auto found = table_.find_owned(id, {State::kReqReceived, State::kMraReqSent});
  if (!found) return tl::unexpected(found.error());
  Connection& connection = **found;
  ConnectionInfo& info = connection.info;
  auto rep = message_of<Rep>(connection);
  if (!say(reply.parameters, info.qp_type == QpType::kXrcTarget, rep)) return fail(EINVAL);
  rep.starting_psn = reply.starting_psn;
  rep.target_ack_delay = reply.ack_delay;
  rep.failover_accepted = reply.failover_accepted;
  rep.local_ca_guid = reply.local_ca_guid;
  info.local_qpn = reply.parameters.qpn & 0xffffff;
  info.receive_psn = reply.starting_psn & 0xffffff;
  info.initiator_depth = reply.parameters.initiator_depth;
  info.responder_resources = reply.parameters.responder_resources;
  connection.local_ca_guid = reply.local_ca_guid;
  table_.enter(connection, State::kRepSent);
  sender_.send_until_answered(connection, rep, now);
  return {};
}

void Manager::handle(const Rtu& rtu, const Incoming& incoming) {
  Connection* const connection = of_peer(rtu.remote_id, rtu.local_id, incoming);
  if (connection == nullptr) {
    // The peer believes in a connection that does not exist here.
    if (table_.find(rtu.remote_id) == nullptr && !may_restore(0, incoming)) {
      sender_.answer_rej(rtu.remote_id, rtu.local_id, Answered::kOther,
                         because(RejReason::kInvalidCommunicationId), incoming);
    }
    return;
  }
  switch (connection->info.state) {
    case State::kRepSent:
    case State::kMraRepReceived:
      table_.enter(*connection, State::kEstablished);
      connection->last.kept = false;
      tell(*connection, &Handler::on_ready, rtu);
      return;
    case State::kIdle:
    case State::kTimeWait:
      if (connection->last.kept && connection->last.type == MessageType::kRej)
        sender_.send_again(*connection);
      [[fallthrough]];
    default:
      count_duplicate(MessageType::kRtu);
      return;
  }
}

Result<void> Manager::establish(LocalId id, TimePoint) {
  const auto connection =
      table_.find_owned(id, {State::kRepSent, State::kMraRepReceived, State::kEstablished});
  if (!connection) return tl::unexpected(connection.error());
  if ((*connection)->info.state == State::kEstablished) return fail(EISCONN);
  table_.enter(**connection, State::kEstablished);
  (*connection)->last.kept = false;
  return {};
}

void Manager::handle(const Lap& lap, const Incoming& incoming) {
  const Connection* const connection = of_peer(lap.remote_id, lap.local_id, incoming);
  Apr apr;
  apr.local_id = lap.remote_id;
  apr.remote_id = lap.local_id;
  apr.status = AprStatus::kUnsupported;
  if (connection == nullptr || connection->info.state != State::kEstablished) {
    apr.status = AprStatus::kInvalidCommunicationId;
  } else if (connection->info.local_qpn != lap.remote_qpn) {
    drop(DropReason::kWrongPeer);
    apr.status = AprStatus::kInvalidQpn;
  }
  sender_.answer(apr, incoming);
}

void Manager::handle(const Apr& apr, const Incoming& incoming) {
  if (of_peer(apr.remote_id, apr.local_id, incoming) != nullptr) count_duplicate(MessageType::kApr);
}

}  // namespace verbena::cm
