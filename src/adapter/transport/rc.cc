// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/rc.h"

#include "adapter/transport/qp_state.h"

namespace verbena::transport {

Verdict RcQueuePair::on_packet(const IncomingPacket& incoming, TimePoint now) {
  const roce::Headers& headers = incoming.packet.headers;
  if (!receives_packets(state())) return Verdict::kNotReady;
  const bool is_word = headers.service() != service_;
  if (is_word ? !understands(headers.opcode) : !has_half_for(headers)) return Verdict::kWrongService;
  if (!roce::is_default_pkey(headers.pkey)) return Verdict::kBadPkey;
  if (!is_from_peer(incoming.path)) return Verdict::kBadSource;

  count_received(incoming);
  if (CongestionNotices::is_marked(incoming.path)) on_marked(headers, now);
  if (is_word) [[unlikely]] {
    hear(incoming.packet, now);
    return Verdict::kAccepted;
  }
  if (incoming.acknowledgement != nullptr) {
    count(kReceivedPackets);
    requester_.on_acknowledge(*incoming.acknowledgement, now);
    if (!receives_packets(state())) return Verdict::kNotReady;
  }
  if (headers.info().is_request) {
    if (state() == IBV_QPS_RTR && !established_) {
      established_ = true;
      emit(IBV_EVENT_COMM_EST);
    }
    if (has_news_of_incast(incast_, incoming.packet, now)) responder_.tell_of_incast();
    if (incoming.messages.empty()) {
      responder_.on_request(incoming.packet, now, incoming.lent);
    } else {
      responder_.on_messages(incoming.packet, incoming.messages, now);
    }
  } else if (headers.operation() == roce::Operation::kAcknowledge) {
    requester_.on_acknowledge({headers.psn, headers.msn, headers.syndrome}, now);
  } else if (headers.operation() == roce::Operation::kAtomicAcknowledge) {
    requester_.on_atomic_acknowledge(headers, now);
  } else {
    if (has_news_of_incast(incast_, incoming.packet, now)) requester_.on_incast(config().incast->get());
    requester_.on_read_response(incoming.packet, now);
  }
  return Verdict::kAccepted;
}

// Places the data before it handles what came with the packet: until then the packet has no visible effect.
std::optional<Verdict> RcQueuePair::on_plain_send(const PlainSend& message, const roce::Path& path,
                                                  TimePoint now) {
  if (role_ != Role::kRc || state() != IBV_QPS_RTS || traces_packets()) [[unlikely]]
    return std::nullopt;
  if (!route().traits.lossless || !is_from_peer(path) || CongestionNotices::is_marked(path)) [[unlikely]]
    return std::nullopt;
  if (!responder_.begin_plain_send(message)) [[unlikely]]
    return std::nullopt;
  count(kReceivedPackets, message.count + (message.acknowledgement != nullptr ? 1 : 0));
  count(kReceivedBytes, message.payload.size());
  count(kReceivedOctets, octets_of(path, message));
  if (message.acknowledgement != nullptr) {
    requester_.on_acknowledge(*message.acknowledgement, now);
    if (!receives_packets(state())) [[unlikely]]
      return Verdict::kNotReady;
  }
  responder_.end_plain_send(message);
  return Verdict::kAccepted;
}

// Whether the QP understands a control packet, which is of no service.
bool RcQueuePair::understands(uint8_t opcode) const {
  switch (opcode) {
    case roce::kCnpOpcode:
      return true;
    case roce::kRefusalOpcode:
      return route().traits.lossless;
    case roce::kSackOpcode:
    case roce::kStoppedOpcode:
      return role_ != Role::kXrcTarget;
    case roce::kSackConfirmationOpcode:
      return role_ != Role::kXrcInitiator;
    case roce::kRepeatedReadsOpcode:
      return role_ == Role::kRc;
    default:
      return false;
  }
}

void RcQueuePair::hear(const roce::Packet& word, TimePoint now) {
  switch (word.headers.opcode) {
    case roce::kCnpOpcode:
      count_on_path(kPathCongestionNotices);
      count(kNoticesReceived);
      return requester_.on_congestion();
    case roce::kRefusalOpcode:
      return hear_refusal(word.payload);
    case roce::kSackConfirmationOpcode:
      return responder_.on_heard(word.headers.psn);
    case roce::kRepeatedReadsOpcode:
      return responder_.on_repeated_reads(word, now);
    case roce::kStoppedOpcode:
      return requester_.on_stopped(word.headers.psn, now);
    default:
      return requester_.on_arrivals(word, now);
  }
}

// The peer may obey CNPs. For READ responses this side also slows its own requests, which determine their
// rate.
void RcQueuePair::on_marked(const roce::Headers& headers, TimePoint now) {
  if (headers.opcode == roce::kCnpOpcode) return;
  count_on_path(kPathMarkedPackets);
  count(kMarkedPackets);
  notices_.on_marked(now);
  if (!headers.info().is_request) requester_.on_congestion();
}

bool RcQueuePair::has_urgent() const {
  if (notices_.is_due() && receives_packets(state())) return true;
  if (reroute_wanted_ && !requester_.has_outstanding()) return true;  // the last response came
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
  flush_stopped();
  if (reroute_wanted_ && !requester_.has_outstanding()) find_route_anew();
  if (notices_.is_due() && receives_packets(state()) && notices_.send(*this) == SendStatus::kBusy) {
    return TransmitResult::kBusy;
  }
  if (with_acknowledgements && route().traits.carries_acknowledgements && !responder_.has_urgent() &&
      !responder_.transmit_acknowledgement()) {
    return TransmitResult::kBusy;
  }
  if (const auto result = responder_.transmit_urgent(budget, now); result != TransmitResult::kIdle)
    return result;
  const auto result = requester_.transmit(now, budget);
  const bool goes_on = result != TransmitResult::kIdle && result != TransmitResult::kPaced;
  if (goes_on && !requester_.awaits_users()) return result;
  if (with_acknowledgements && !responder_.transmit_acknowledgement()) return TransmitResult::kBusy;
  return result;
}

// Only on lossless routes: elsewhere requests may wait to leave with others.
bool RcQueuePair::send_at_once(TimePoint now) {
  const Traits& traits = route().traits;
  if (!traits.lossless || reroute_wanted_ || responder_.has_urgent() || state() != IBV_QPS_RTS) return false;
  std::optional<Acknowledgement> acknowledgement;
  if (traits.carries_acknowledgements) {
    acknowledgement = responder_.acknowledgement();
  } else if (!responder_.transmit_acknowledgement()) {
    return false;
  }
  const bool had_one = acknowledgement.has_value();
  const bool is_all = requester_.send_simple(now, acknowledgement);
  if (had_one && !acknowledgement) responder_.acknowledgement_taken();
  return responder_.transmit_acknowledgement() && is_all;
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
