// SPDX-License-Identifier: Apache-2.0
#include "transport/rc.h"

#include "transport/qp_state.h"

namespace verbena::transport {
namespace {

bool is_of_arrivals(uint8_t opcode) {
  return opcode == roce::kArrivalsOpcode || opcode == roce::kHeardOpcode;
}

}  // namespace

Verdict RcQueuePair::on_packet(const IncomingPacket& incoming, TimePoint now) {
  const roce::Headers& headers = incoming.packet.headers;
  if (!receives_packets(state())) return Verdict::kNotReady;
  const bool of_arrivals = role_ == Role::kRc && is_of_arrivals(headers.opcode);
  const bool is_notice = headers.opcode == roce::kCnpOpcode;
  const bool is_refusal = headers.opcode == roce::kRefusalOpcode && route().traits.lossless;
  if (!of_arrivals && !is_notice && !is_refusal &&
      (headers.service() != service_ || !has_half_for(headers))) {
    return Verdict::kWrongService;
  }
  if (!roce::is_default_pkey(headers.pkey)) return Verdict::kBadPkey;
  if (!is_from_peer(incoming.path)) return Verdict::kBadSource;

  count(kReceivedPackets);
  count(kReceivedBytes, incoming.packet.payload.size());
  if (CongestionNotices::is_marked(incoming.path)) on_marked(headers, now);
  if (is_notice) {
    count_on_path(kPathCongestionNotices);
    requester_.on_congestion(now);
  } else if (is_refusal) {
    hear_refusal(incoming.packet.payload);
  } else if (of_arrivals) {
    if (headers.opcode == roce::kHeardOpcode) {
      responder_.on_heard(headers.psn);
    } else {
      requester_.on_arrivals(incoming.packet, now);
    }
  } else if (headers.info().is_request) {
    if (state() == IBV_QPS_RTR && !established_) {
      established_ = true;
      emit(IBV_EVENT_COMM_EST);
    }
    if (has_news_of_incast(incast_, incoming.packet, now)) responder_.tell_of_incast();
    responder_.on_request(incoming.packet);
  } else if (headers.operation() == roce::Operation::kAcknowledge) {
    requester_.on_acknowledge(headers, now);
  } else if (headers.operation() == roce::Operation::kAtomicAcknowledge) {
    requester_.on_atomic_acknowledge(headers, now);
  } else {
    if (has_news_of_incast(incast_, incoming.packet, now)) requester_.on_incast(config().incast->get());
    requester_.on_read_response(incoming.packet, now);
  }
  return Verdict::kAccepted;
}

// Who asked for data says how fast it comes; the peer may be one that obeys notices as well.
void RcQueuePair::on_marked(const roce::Headers& headers, TimePoint now) {
  if (headers.opcode == roce::kCnpOpcode) return;
  count_on_path(kPathMarkedPackets);
  notices_.on_marked(now);
  if (!headers.info().is_request) requester_.on_congestion(now);
}

bool RcQueuePair::has_urgent() const {
  if (notices_.is_due() && receives_packets(state())) return true;
  if (reroute_wanted_ && !requester_.has_outstanding()) return true;  // the last answer came
  if (responder_.has_urgent() || requester_.can_transmit()) return true;
  return state() == IBV_QPS_ERR && has_to_flush();
}

void RcQueuePair::reroute() {
  if (state() != IBV_QPS_RTR && state() != IBV_QPS_RTS && state() != IBV_QPS_SQD) return;
  reroute_wanted_ = true;
  requester_.hold_new(true);
  if (!requester_.has_outstanding()) find_route_anew();
}

void RcQueuePair::find_route_anew() {
  reroute_wanted_ = false;
  requester_.hold_new(false);
  find_route(attributes().path, attributes().destination);
  note_route();
  requester_.on_route();
}

TransmitResult RcQueuePair::transmit(TimePoint now, uint32_t budget, bool with_acknowledgements) {
  if (state() == IBV_QPS_ERR) {
    flush_send_queue();
    flush_recv_queue();
  }
  if (reroute_wanted_ && !requester_.has_outstanding()) find_route_anew();
  if (notices_.is_due() && receives_packets(state()) && notices_.send(*this) == SendStatus::kBusy) {
    return TransmitResult::kBusy;
  }
  if (with_acknowledgements && route().traits.carries_acknowledgements && !responder_.has_urgent() &&
      !responder_.transmit_acknowledgement()) {
    return TransmitResult::kBusy;
  }
  if (const auto result = responder_.transmit_urgent(budget); result != TransmitResult::kIdle) return result;
  const auto result = requester_.transmit(now, budget);
  const bool goes_on = result != TransmitResult::kIdle && result != TransmitResult::kPaced;
  if (goes_on && !requester_.awaits_users()) return result;
  if (with_acknowledgements && !responder_.transmit_acknowledgement()) return TransmitResult::kBusy;
  return result;
}

// Where something may be lost, requests may wait for others to leave with.
bool RcQueuePair::send_at_once(TimePoint now) {
  if (!route().traits.lossless || reroute_wanted_ || responder_.has_urgent()) return false;
  return state() == IBV_QPS_RTS && responder_.transmit_acknowledgement() && requester_.send_simple(now);
}

void RcQueuePair::on_enter(ibv_qp_state from, ibv_qp_state to) {
  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) {
    requester_.halt();
    responder_.halt(to);
    notices_ = {};
    established_ = reroute_wanted_ = false;
    requester_.hold_new(false);
  } else if (to == IBV_QPS_RTR && from == IBV_QPS_INIT) {
    find_route(attributes().path, attributes().destination);
    note_route();
    responder_.start();
  } else if (to == IBV_QPS_RTS && from == IBV_QPS_RTR) {
    requester_.start();
  } else if (to == IBV_QPS_SQD && from == IBV_QPS_RTS) {
    requester_.drain();
  }
}

}  // namespace verbena::transport
