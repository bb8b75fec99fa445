// SPDX-License-Identifier: Apache-2.0
// Trace entries of queue pairs, except those that the services write themselves.
#include <algorithm>
#include <cstring>

#include "adapter/transport/queue_pair.h"

namespace verbena::transport {

using protocol::TraceDrop;
using protocol::TraceWay;
using trace::Kind;

namespace {

// By Verdict.
constexpr TraceDrop kReasons[] = {TraceDrop::kNotReady, TraceDrop::kNotReady, TraceDrop::kWrongService,
                                  TraceDrop::kBadPkey, TraceDrop::kBadSource};

}  // namespace

void QueuePair::note_entered(ibv_qp_state from, ibv_qp_state to, protocol::TraceCause cause) const {
  if (config_.trace == nullptr || from == to) return;
  note(Kind::kState, {from, to, static_cast<uint64_t>(cause)});
  const QpAttributes& a = attributes_;
  if (to == IBV_QPS_RTR && a.destination.value() != 0) {
    trace::Recorder::Numbers numbers{0, 0, a.destination.value() | uint64_t{a.path_mtu} << 32,
                                     a.receive_psn.value()};
    std::memcpy(numbers.data(), a.path.destination.bytes.data(), sizeof a.path.destination.bytes);
    note(Kind::kPeer, numbers);
  }
  if (to == IBV_QPS_RTS && from == IBV_QPS_RTR) {
    const uint64_t tries = a.timeout | uint64_t{a.retry_count} << 8 | uint64_t{a.rnr_retry} << 16;
    note(Kind::kReadyToSend, {a.send_psn.value(), tries});
  }
}

void QueuePair::note_route() const {
  const TraceWay way = route_ == &no_route()     ? TraceWay::kNowhere
                       : route_->traits.lossless ? TraceWay::kMemory
                                                 : TraceWay::kWire;
  note(Kind::kRoute, {static_cast<uint64_t>(way)});
}

void QueuePair::trace_details(bool on) {
  details_ = on ? config_.trace : nullptr;
  traced_posts_ = send_queue_.posted();
}

void QueuePair::trace_refusal(Verdict verdict, const roce::Headers& headers) const {
  note_dropped(kReasons[static_cast<size_t>(verdict)], headers);
}

// Requests that a RESET dropped in between are not traced.
void QueuePair::trace_new_requests() {
  const uint32_t posted = send_queue_.posted();
  const uint32_t waiting = send_queue_.waiting();
  const uint32_t count = std::min(posted - traced_posts_, waiting);
  for (uint32_t at = posted - count; at != posted; ++at) {
    const queues::SendWqe& wqe = send_queue_.at(at);
    details_->detail(config_.qpn, Kind::kPosted, {wqe.opcode, wqe.wr_id, wqe.length});
  }
  traced_posts_ = posted;
}

void QueuePair::trace_packet(Kind kind, const roce::Headers& headers, size_t bytes, uint32_t count) const {
  const uint64_t flags = headers.opcode | uint64_t{count & 0xff} << 8 | uint64_t{headers.ack_request} << 16;
  details_->detail(config_.qpn, kind, {flags, headers.psn.value(), bytes, headers.syndrome});
}

void QueuePair::trace_sent(const OutgoingPacket& packet, SendStatus status) const {
  if (status != SendStatus::kSent) return;
  if (packet.acknowledgement != nullptr)
    trace_packet(Kind::kPacketSent, headers_of(*packet.acknowledgement, packet.headers.destination), 0, 1);
  if (packet.messages.empty())
    return trace_packet(Kind::kPacketSent, packet.headers, packet.payload_bytes, packet.count);
  trace_messages(Kind::kPacketSent, packet.headers, packet.messages);
}

void QueuePair::trace_sent(const PlainSend& message, SendStatus status) const {
  as_packet(attributes_.path, message, [&](const OutgoingPacket& packet) { trace_sent(packet, status); });
}

void QueuePair::trace_arrived(const IncomingPacket& incoming) const {
  const roce::Packet& packet = incoming.packet;
  if (incoming.acknowledgement != nullptr)
    trace_packet(Kind::kPacketReceived, headers_of(*incoming.acknowledgement, packet.headers.destination), 0,
                 1);
  if (incoming.messages.empty())
    return trace_packet(Kind::kPacketReceived, packet.headers, incoming.payload_bytes(), packet.count);
  trace_messages(Kind::kPacketReceived, packet.headers, incoming.messages);
}

// Traces each message of a batch as if it had been sent alone.
void QueuePair::trace_messages(Kind kind, const roce::Headers& headers,
                               std::span<const uint8_t> messages) const {
  for (size_t i = 0; i < messages.size(); ++i) {
    trace_packet(kind, headers_of_message(headers, messages, i), messages[i], 1);
  }
}

void QueuePair::trace_completion(uint64_t wr_id, ibv_wc_status status, uint32_t opcode,
                                 uint32_t bytes) const {
  details_->detail(config_.qpn, Kind::kCompletion, {uint64_t{status} | uint64_t{opcode} << 32, wr_id, bytes});
}

}  // namespace verbena::transport
