// SPDX-License-Identifier: Apache-2.0
#include "cm/manager_send.h"

namespace verbena::cm {
namespace {

QpType qp_type_of(const Req& req) {
  if (req.is_xrc()) return QpType::kXrcTarget;
  return req.transport == Transport::kUc ? QpType::kUc : QpType::kRc;
}

// Of two REQs that cross (IBTA volume 1, 12.10.4) that of the greater CA GUID stands; on one adapter, that of
// the greater QPN. Its sender takes no notice of the other.
bool stays_active(const Connection& mine, const Req& req) {
  if (mine.local_ca_guid != req.local_ca_guid) return mine.local_ca_guid > req.local_ca_guid;
  return mine.info.local_qpn > req.local_qpn;
}

// What both sides come to see alike: their names for it differ.
void remember(const Req& req, const Arrival& arrival, Connection& connection) {
  ConnectionInfo& info = connection.info;
  info.path = answer_path(arrival.path);
  info.path.flow_label = req.primary.flow_label;
  info.path.traffic_class = req.primary.traffic_class;
  info.remote_id = req.local_id;
  info.is_active = false;
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
  connection.service_id = req.service_id;
}

}  // namespace

void Manager::handle(const Req& req, const Receipt& receipt) {
  const roce::Address& peer = receipt.arrival.path.source;
  if (Connection* const known = by_remote_id_.find({peer, req.local_id})) {
    repeat_answer(req, *known, receipt);
    return;
  }
  if (const auto why = refusal_of(req, receipt.arrival)) {
    answer_rej(0, req.local_id, Answered::kReq, *why, receipt);
    return;
  }
  if (Connection* const mine = crossing(req, receipt.arrival)) {
    ++counters_.peer_to_peer;
    if (stays_active(*mine, req)) {
      drop(DropReason::kPeerToPeerLost);
    } else {
      become_passive(*mine, req, receipt);
    }
    return;
  }
  if (is_stale(req.local_qpn, receipt)) {
    answer_rej(0, req.local_id, Answered::kReq, because(RejReason::kStaleConnection), receipt);
    return;
  }
  const Admission admission = admit(req, receipt);
  if (admission.verdict == Admission::kRefuse) {
    answer_rej(0, req.local_id, Answered::kReq, because(admission.reason), receipt);
  } else if (admission.verdict == Admission::kAdmit) {
    become_passive(create(admission.context, receipt.arrival.path), req, receipt);
  }
}

// Why no listener could take this REQ.
std::optional<RejectParameters> Manager::refusal_of(const Req& req, const Arrival& arrival) const {
  if (req.transport == Transport::kRd || (req.transport == Transport::kExtended && !req.is_xrc())) {
    return because(RejReason::kInvalidTransportServiceType);
  }
  if (req.path_mtu < 1 || req.path_mtu > 5) return because(RejReason::kInvalidPathMtu);
  // Answers go where the REQ came from. One that names another host would make us send to that.
  if (req.primary.local_gid != arrival.path.source || req.primary.remote_gid != arrival.path.destination) {
    RejectParameters why = because(RejReason::kInvalidGid);
    why.ari = std::as_bytes(std::span(arrival.path.destination.bytes));
    return why;
  }
  return std::nullopt;
}

// The REQ again: so is our answer, if there was one.
void Manager::repeat_answer(const Req& req, Connection& connection, const Receipt& receipt) {
  ++counters_.duplicates[static_cast<size_t>(MessageType::kReq)];
  switch (connection.info.state) {
    case State::kMraReqSent:
    case State::kRepSent:
      send_again(connection);
      break;
    case State::kIdle:  // lingers
      if (connection.last.kept) send_again(connection);
      break;
    case State::kTimeWait:
      answer_rej(0, req.local_id, Answered::kReq, because(RejReason::kStaleConnection), receipt);
      break;
    default:
      break;
  }
}

// That of ours which the peer's REQ is the other half of.
Connection* Manager::crossing(const Req& req, const Arrival& arrival) {
  for (Connection* const mine : peer_to_peer_) {
    if (mine->service_id == req.service_id && mine->info.path.destination == arrival.path.source &&
        mine->info.path.source == arrival.path.destination) {
      return mine;
    }
  }
  return nullptr;
}

void Manager::become_passive(Connection& connection, const Req& req, const Receipt& receipt) {
  enter(connection, State::kReqReceived);
  remember(req, receipt.arrival, connection);
  connection.transaction = receipt.transaction;
  connection.last.kept = false;
  connection.timeout = at_most(req.local_response_timeout);
  insert_remote_id(connection);
  insert_remote_qpn(connection);
  if (tell(connection)) {
    handler_.on_request(connection.info.local_id, connection.info.context, req, receipt.arrival);
  }
}

// Whether the peer's QP is of a connection that stands on our side. It cannot be of two: the peer has lost
// the old one, which therefore ends (IBTA volume 1, 12.9.8.3.1).
bool Manager::is_stale(uint32_t remote_qpn, const Receipt& receipt) {
  Connection* const old = by_remote_qpn_.find({receipt.arrival.path.source, remote_qpn});
  if (old == nullptr) return false;
  ++counters_.stale_connections;
  if (old->info.state == State::kEstablished) send_dreq(*old, {}, receipt.now);
  return true;
}

Result<void> Manager::reply(LocalId id, const ConnectReply& reply, TimePoint now) {
  const auto found = find_in(id, {State::kReqReceived, State::kMraReqSent});
  if (!found) return tl::unexpected(found.error());
  Connection& connection = **found;
  ConnectionInfo& info = connection.info;
  Rep rep;
  if (!say(reply.parameters, info.qp_type == QpType::kXrcTarget, rep)) return fail(EINVAL);
  rep.local_id = info.local_id;
  rep.remote_id = info.remote_id;
  rep.starting_psn = reply.starting_psn;
  rep.target_ack_delay = reply.ack_delay;
  rep.failover_accepted = reply.failover_accepted;
  rep.local_ca_guid = reply.local_ca_guid;
  info.local_qpn = reply.parameters.qpn & 0xffffff;
  info.receive_psn = reply.starting_psn & 0xffffff;
  info.initiator_depth = reply.parameters.initiator_depth;
  info.responder_resources = reply.parameters.responder_resources;
  connection.local_ca_guid = reply.local_ca_guid;
  enter(connection, State::kRepSent);
  send_until_answered(connection, rep, now);
  return {};
}

void Manager::handle(const Rtu& rtu, const Receipt& receipt) {
  Connection* const connection = of_peer(rtu.remote_id, rtu.local_id, receipt.arrival);
  if (connection == nullptr) {
    // The peer believes in a connection that is not there.
    if (find(rtu.remote_id) == nullptr && !may_return(0, receipt)) {
      answer_rej(rtu.remote_id, rtu.local_id, Answered::kOther, because(RejReason::kInvalidCommunicationId),
                 receipt);
    }
    return;
  }
  switch (connection->info.state) {
    case State::kRepSent:
    case State::kMraRepReceived:
      enter(*connection, State::kEstablished);
      connection->last.kept = false;
      if (tell(*connection)) handler_.on_ready(connection->info.local_id, connection->info.context, rtu);
      return;
    case State::kIdle:
    case State::kTimeWait:
      if (connection->last.kept && connection->last.type == MessageType::kRej) send_again(*connection);
      [[fallthrough]];
    default:
      ++counters_.duplicates[static_cast<size_t>(MessageType::kRtu)];
      return;
  }
}

Result<void> Manager::establish(LocalId id, TimePoint) {
  const auto connection = find_in(id, {State::kRepSent, State::kMraRepReceived, State::kEstablished});
  if (!connection) return tl::unexpected(connection.error());
  if ((*connection)->info.state == State::kEstablished) return fail(EISCONN);
  enter(**connection, State::kEstablished);
  (*connection)->last.kept = false;
  return {};
}

}  // namespace verbena::cm
