// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/queue_pair.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "adapter/congestion/flow.h"
#include "adapter/transport/congestion_notices.h"
#include "adapter/transport/error_words.h"
#include "adapter/transport/qp_state.h"
#include "adapter/transport/tag_matching.h"
#include "base/text.h"

namespace verbena::transport {

using protocol::TraceDrop;
using protocol::TraceWay;
using trace::Kind;

namespace {

// Opcode of a work request's completion, by enum ibv_wr_opcode.
constexpr std::array<ibv_wc_opcode, IBV_WR_ATOMIC_WRITE + 1> kCompletionOpcodes = [] {
  std::array<ibv_wc_opcode, IBV_WR_ATOMIC_WRITE + 1> opcodes{};
  opcodes[IBV_WR_RDMA_WRITE] = opcodes[IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE;
  opcodes[IBV_WR_SEND] = opcodes[IBV_WR_SEND_WITH_IMM] = opcodes[IBV_WR_SEND_WITH_INV] = IBV_WC_SEND;
  opcodes[IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ;
  opcodes[IBV_WR_ATOMIC_CMP_AND_SWP] = IBV_WC_COMP_SWAP;
  opcodes[IBV_WR_ATOMIC_FETCH_AND_ADD] = IBV_WC_FETCH_ADD;
  opcodes[IBV_WR_LOCAL_INV] = IBV_WC_LOCAL_INV;
  opcodes[IBV_WR_BIND_MW] = IBV_WC_BIND_MW;
  opcodes[IBV_WR_TSO] = IBV_WC_TSO;
  opcodes[IBV_WR_DRIVER1] = IBV_WC_DRIVER1;
  opcodes[IBV_WR_ATOMIC_WRITE] = IBV_WC_ATOMIC_WRITE;
  opcodes[queues::kFlushOpcode] = queues::kFlushCompletion;
  return opcodes;
}();

// By Verdict.
constexpr TraceDrop kReasons[] = {TraceDrop::kNotReady, TraceDrop::kNotReady, TraceDrop::kWrongService,
                                  TraceDrop::kBadPkey, TraceDrop::kBadSource};

class Nowhere final : public PacketSink {
 public:
  SendStatus send(const OutgoingPacket&) override { return SendStatus::kSent; }
};

}  // namespace

void QueuePair::enter(ibv_qp_state next, protocol::TraceCause cause) {
  const ibv_qp_state from = state();
  const auto forget = [this] {
    send_queue_.clear();
    receives_.clear();
    completion_lost_ = overrun_said_ = false;
    drops_said_ = 0;
    peer_words_.clear();
  };
  if (next == IBV_QPS_RESET) route_ = &no_route();
  // Drops what a thread posted before it saw RESET. This must precede the store of the new state: a thread
  // that sees that state may post.
  if (from == IBV_QPS_RESET) forget();
  state_.store(next, std::memory_order_seq_cst);  // see publish_receives()
  if (next == IBV_QPS_RESET) forget();
  note_entered(from, next, cause);
  on_enter(from, next);
  if (next == IBV_QPS_ERR) {
    flush_send_queue();
    flush_recv_queue();
    // The QP takes nothing more from a shared queue: its owner may destroy the QP without losing a request
    // (IBTA volume 1, 10.2.9.5).
    if (config_.srq != nullptr && from != IBV_QPS_ERR) emit(IBV_EVENT_QP_LAST_WQE_REACHED);
  }
}

void QueuePair::fail(std::optional<ibv_event_type> event) {
  if (state() == IBV_QPS_ERR) return;
  enter(IBV_QPS_ERR, protocol::TraceCause::kFailure);
  if (event) emit(*event);
}

void QueuePair::count_send(ibv_wc_opcode opcode, ibv_wc_status status) {
  if (status == IBV_WC_SUCCESS) [[likely]] {
    if (opcode == IBV_WC_SEND) count(kSends);
  } else if (status != IBV_WC_WR_FLUSH_ERR) {
    count(kSendErrors);
    if (status == IBV_WC_RETRY_EXC_ERR) count(kRetriesExceeded);
    if (status == IBV_WC_RNR_RETRY_EXC_ERR) count(kRnrRetriesExceeded);
  }
}

void QueuePair::count_completion(CountedRequest kind, ibv_wc_status status, uint32_t bytes) const {
  CompletionCount* const count = (*counts_)[kind].get();
  if (count == nullptr) return;
  if (status == IBV_WC_SUCCESS) {
    count->completed.fetch_add(count->counts_bytes ? bytes : 1, std::memory_order_release);
  } else {
    count->failed.fetch_add(1, std::memory_order_release);
  }
}

void QueuePair::count_send_completion(ibv_wc_opcode opcode, ibv_wc_status status, uint32_t bytes) const {
  if (opcode == IBV_WC_SEND) count_completion(kCountedSend, status, bytes);
  if (opcode == IBV_WC_RDMA_READ) count_completion(kCountedRead, status, bytes);
  if (opcode == IBV_WC_RDMA_WRITE) count_completion(kCountedWrite, status, bytes);
}

void QueuePair::complete_send(const queues::SendWqe& wqe, ibv_wc_status status) {
  if ((wqe.flags & queues::kTagMatchingRequest) != 0) [[unlikely]] {
    complete_rendezvous(wqe, status);
    send_queue_.consume();
    return;
  }
  const ibv_wc_opcode opcode =
      kCompletionOpcodes[std::min<size_t>(wqe.opcode, kCompletionOpcodes.size() - 1)];
  count_send(opcode, status);
  if (counts_ != nullptr) [[unlikely]]
    count_send_completion(opcode, status, wqe.length);
  if (status != IBV_WC_SUCCESS && status != IBV_WC_WR_FLUSH_ERR) [[unlikely]]
    say_failed(wqe, status);
  if (status == IBV_WC_SUCCESS && !config_.signal_all && !wqe.has_flag(IBV_SEND_SIGNALED)) {
    send_queue_.consume();
    return;
  }
  count(kCompletions);
  if (details_ != nullptr) [[unlikely]]
    trace_completion(wqe.wr_id, status, opcode, wqe.length);
  const queues::CompletionQueue::Plain entry{.wr_id = wqe.wr_id,
                                             .byte_len = wqe.length,
                                             .qp_num = config_.qpn.value(),
                                             .status = status,
                                             .opcode = opcode};
  // Frees the slot before the application can see the completion: its queue may have only one.
  send_queue_.consume();
  if (!config_.send_cq->push(entry, status != IBV_WC_SUCCESS)) [[unlikely]]
    lose_completion(false);
}

void QueuePair::complete_recv(ibv_wc& wc, bool solicited, const Misfit& misfit) {
  count(kCompletions);
  if (wc.status == IBV_WC_SUCCESS) {
    count(kReceives);
  } else if (wc.status != IBV_WC_WR_FLUSH_ERR) {
    count(kReceiveErrors);
  }
  wc.wr_id = receives_.current()->wr_id;
  wc.qp_num = config_.qpn.value();
  const bool failed = wc.status != IBV_WC_SUCCESS && wc.status != IBV_WC_WR_FLUSH_ERR;
  if (failed) note(trace::Kind::kReceiveFailed, {wc.status, wc.wr_id});
  if (failed && log_level() >= LogLevel::kError) log_error("{}", what_failed(*this, wc, misfit));
  if (details_ != nullptr) [[unlikely]]
    trace_completion(wc.wr_id, wc.status, wc.opcode, wc.byte_len);
  if (counts_ != nullptr) [[unlikely]]
    count_completion(kCountedReceive, wc.status, wc.byte_len);
  queues::CompletionQueue* cq = receives_.cq();
  // Frees the slot before the application can see the completion.
  receives_.finish();
  if (!cq->push(wc, solicited)) lose_completion(true);
}

void QueuePair::complete_plain_receive(uint32_t bytes, bool solicited) {
  count(kCompletions);
  count(kReceives);
  if (counts_ != nullptr) [[unlikely]]
    count_completion(kCountedReceive, IBV_WC_SUCCESS, bytes);
  const queues::CompletionQueue::Plain entry{.wr_id = receives_.current()->wr_id,
                                             .byte_len = bytes,
                                             .qp_num = config_.qpn.value(),
                                             .src_qp = attributes_.destination.value(),
                                             .opcode = IBV_WC_RECV};
  queues::CompletionQueue* const cq = receives_.cq();
  // Frees the slot before the application can see the completion.
  receives_.finish();
  if (!cq->push(entry, solicited)) [[unlikely]]
    lose_completion(true);
}

void QueuePair::complete_plain_receives(std::span<const queues::CompletionQueue::Differing> received) {
  count(kCompletions, received.size());
  count(kReceives, received.size());
  queues::Completion common;
  common.status = IBV_WC_SUCCESS;
  common.opcode = IBV_WC_RECV;
  common.qp_num = config_.qpn.value();
  common.src_qp = attributes_.destination.value();
  if (details_ != nullptr) [[unlikely]] {
    for (const auto& one : received) trace_completion(one.wr_id, IBV_WC_SUCCESS, IBV_WC_RECV, one.byte_len);
  }
  if (counts_ != nullptr) [[unlikely]] {
    for (const auto& one : received) count_completion(kCountedReceive, IBV_WC_SUCCESS, one.byte_len);
  }
  if (!receives_.cq()->push_all(common, received)) lose_completion(true);
}

void QueuePair::lose_completion(bool of_receives) {
  if (!std::exchange(completion_lost_, true)) note(trace::Kind::kCqOverrun, {of_receives});
  if (std::exchange(overrun_said_, true)) return;
  if (log_level() >= LogLevel::kError)
    log_error("{}", what_overran(*this, *(of_receives ? receives_.cq() : config_.send_cq), of_receives));
}

void QueuePair::say_failed(const queues::SendWqe& wqe, ibv_wc_status status) const {
  note(trace::Kind::kSendFailed,
       {uint64_t{status} | uint64_t{wqe.opcode} << 32, wqe.wr_id, wqe.first_psn.value(), wqe.length});
  if (log_level() >= LogLevel::kError) log_error("{}", what_failed(*this, wqe, status, peer_words_));
}

void QueuePair::hear_refusal(ConstBytes words) try {
  constexpr size_t kMaxBytes = 400;
  const auto* text = reinterpret_cast<const char*>(words.data());
  peer_words_ = printable({text, std::min(words.size(), kMaxBytes)});
} catch (const std::bad_alloc&) {
  peer_words_.clear();
}

// ---- tag matching

void QueuePair::complete_tagged(uint64_t wr_id, ibv_wc_status status, uint8_t flags, uint32_t bytes,
                                const TaggedMessage& message) {
  queues::Completion entry;
  entry.wr_id = wr_id;
  entry.status = static_cast<uint8_t>(status);
  entry.opcode = IBV_WC_TM_RECV;
  entry.wc_flags = flags;
  entry.byte_len = bytes;
  // The tag goes with the match: a program that gets the data's completion has already got that.
  if ((flags & IBV_WC_TM_MATCH) != 0) {
    entry.tag = message.tag;
    entry.tag_private = message.application;
  }
  entry.qp_num = config_.qpn.value();
  entry.src_qp = attributes_.destination.value();
  count(kCompletions);
  if (!receives_.cq()->push(entry, true)) lose_completion(true);
}

void QueuePair::complete_match(const TaggedMessage& message, ibv_wc_status status, uint8_t flags,
                               uint32_t bytes) {
  const uint64_t wr_id = receives_.current()->wr_id;
  receives_.finish();
  complete_tagged(wr_id, status, flags, bytes, message);
}

// Completes the READ that fetched the data of a rendezvous. The SEND that tells its sender has no completion.
void QueuePair::complete_rendezvous(const queues::SendWqe& wqe, ibv_wc_status status) {
  if (wqe.opcode != IBV_WR_RDMA_READ) return;
  complete_tagged(wqe.wr_id, status, status == IBV_WC_SUCCESS ? IBV_WC_TM_DATA_VALID : 0, wqe.length, {});
}

bool QueuePair::select_receives(uint32_t srq_number, bool in_message) {
  queues::SharedReceiveQueue* srq = config_.srqs->find(srq_number);
  if (srq == nullptr || srq->xrc_domain() != config_.xrc_domain) return false;
  if (in_message) return srq == receives_.shared();
  receives_.select(*srq);
  return true;
}

void QueuePair::flush_send_queue() {
  const uint32_t count = send_queue_.waiting();
  if (count > 0) note_frequent(trace::Kind::kFlushed, {count, 0});
  while (!send_queue_.empty()) {
    complete_send(send_queue_.at(send_queue_.consumed()), IBV_WC_WR_FLUSH_ERR);
  }
}

void QueuePair::flush_recv_queue() {
  if (receives_.any_to_flush()) note_frequent(trace::Kind::kFlushed, {0, receives_.own().waiting()});
  while (receives_.any_to_flush()) {
    ibv_wc wc{};
    wc.status = IBV_WC_WR_FLUSH_ERR;
    wc.opcode = IBV_WC_RECV;
    complete_recv(wc, true);
  }
}

SendStatus QueuePair::send_word(uint8_t opcode, roce::Psn psn, ConstBytes payload) {
  roce::Headers headers;
  headers.opcode = opcode;
  headers.destination = attributes_.destination;
  headers.psn = psn;
  headers.pad = roce::padding_of(static_cast<uint32_t>(payload.size()));
  return send_word(*route_, attributes_.path, headers, payload);
}

SendStatus QueuePair::send_word(const Route& route, const roce::Path& path, roce::Headers headers,
                                ConstBytes payload) {
  headers.source = config_.qpn;
  const auto bytes = static_cast<uint32_t>(payload.size());
  const std::span<const ConstBytes> pieces(&payload, payload.empty() ? 0 : 1);
  const OutgoingPacket packet{path, headers, pieces, bytes};
  const SendStatus status = route.sink->send(packet);
  if (details_ != nullptr) [[unlikely]]
    trace_sent(packet, status);
  if (status == SendStatus::kSent) {
    count(kSentPackets);
    count(kSentOctets, octets_of(packet));
  }
  return status;
}

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

const Route& no_route() {
  static Nowhere nowhere;
  static const Route route{.traits = {.max_payload = UINT32_MAX}, .sink = &nowhere};
  return route;
}

void show_path(PathNumbers& numbers, const congestion::Flow* flow, uint64_t in_flight) {
  const auto show = [&](PathNumber which, uint64_t value) {
    numbers[which].store(value, std::memory_order_relaxed);
  };
  static constexpr congestion::RttEstimator kUnknown;
  const congestion::RttEstimator& round_trip = flow != nullptr ? flow->round_trip() : kUnknown;
  show(kPathRoundTrip, static_cast<uint64_t>(round_trip.smoothed().count()));
  show(kPathUsualRoundTrip, static_cast<uint64_t>(round_trip.usual().count()));
  show(kPathWindow, flow != nullptr ? flow->window() : 0);
  show(kPathRate, flow != nullptr ? flow->rate() : 0);
  show(kPathInFlight, flow != nullptr ? in_flight : 0);
}

SendStatus CongestionNotices::send(QueuePair& qp) {
  return send(qp, qp.route(), qp.attributes().path, qp.attributes().destination);
}

SendStatus CongestionNotices::send(QueuePair& qp, const Route& route, const roce::Path& path,
                                   roce::Qpn destination) {
  // The payload of a CNP: 16 reserved bytes.
  static constexpr std::array<std::byte, 16> kReserved{};
  roce::Headers headers;
  headers.opcode = roce::kCnpOpcode;
  headers.destination = destination;
  headers.becn = true;
  const SendStatus status = qp.send_word(route, path, headers, kReserved);
  if (status == SendStatus::kSent) qp.count(kNoticesSent);
  if (status != SendStatus::kBusy) is_due_ = false;
  return status;
}

}  // namespace verbena::transport
