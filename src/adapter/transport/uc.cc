// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/uc.h"

#include <array>
#include <new>

#include "adapter/transport/error_words.h"
#include "adapter/transport/qp_state.h"
#include "adapter/transport/send_request.h"

namespace verbena::transport {
namespace {

using queues::SendWqe;
using roce::Psn;

// A packet at most this many PSNs behind was overtaken on its way. One further behind is from a peer that has
// started again.
constexpr int32_t kOvertaken = 4096;

}  // namespace

// ---- receiving side

Verdict UcQueuePair::on_packet(const IncomingPacket& incoming, TimePoint now) {
  const roce::Headers& headers = incoming.packet.headers;
  if (!receives_packets(state())) return Verdict::kNotReady;
  const bool is_notice = headers.opcode == roce::kCnpOpcode;
  const bool is_word = is_notice || headers.opcode == roce::kReceiverReportOpcode ||
                       headers.opcode == roce::kSackConfirmationOpcode;
  if (!is_word && headers.service() != roce::Service::kUc) return Verdict::kWrongService;
  if (!roce::is_default_pkey(headers.pkey)) return Verdict::kBadPkey;
  if (!is_from_peer(incoming.path)) return Verdict::kBadSource;
  count_received(incoming);
  if (CongestionNotices::is_marked(incoming.path) && !is_notice) {
    count_on_path(kPathMarkedPackets);
    count(kMarkedPackets);
    notices_.on_marked(now);
  }
  if (is_notice) {
    count_on_path(kPathCongestionNotices);
    count(kNoticesReceived);
    flow_.on_mark(now);
    show_path();
  } else if (headers.opcode == roce::kReceiverReportOpcode) {
    on_report(incoming.packet, now);
  } else if (headers.opcode == roce::kSackConfirmationOpcode) {
    on_heard(headers.psn);
  } else {
    on_message_packet(incoming, now);
  }
  return Verdict::kAccepted;
}

void UcQueuePair::on_message_packet(const IncomingPacket& incoming, TimePoint now) {
  if (state() == IBV_QPS_RTR && !established_) {
    established_ = true;
    emit(IBV_EVENT_COMM_EST);
  }
  if (has_news_of_incast(incast_, incoming.packet, now)) owed_.owe();
  receive(incoming.packet);
}

// After a gap, the rest of the message with the gap is dropped, and the next message that begins is taken
// (IBTA volume 1, 9.8.2.2.2). A late packet belongs to a dropped message, or is a duplicate.
void UcQueuePair::receive(const roce::Packet& packet) {
  const roce::OpcodeInfo& info = packet.headers.info();
  const Psn psn = packet.headers.psn;
  if (const int32_t behind = expected_ - psn; behind > 0 && behind <= kOvertaken) {
    count(kDuplicateRequests);
    note_frequent(trace::Kind::kDuplicate, {psn.value(), expected_.value(), packet.headers.opcode});
    owed_.on_late();
    return;
  }
  const int32_t missing = psn - expected_;  // negative: the peer has started again
  if (missing != 0) {
    count(kOutOfSequence);
    note_frequent(trace::Kind::kOutOfSequence, {psn.value(), expected_.value()});
    inbound_.abandon();
  }
  expected_ = psn + 1;
  if (!route().traits.lossless && config().repairs) {
    owed_.on_packet(static_cast<uint32_t>(std::max(missing, 0)), static_cast<uint32_t>(packet.payload.size()),
                    packet.headers.ack_request);
  }
  if (info.starts_message) {
    inbound_.abandon();  // the message before has lost its end
  } else if (!inbound_.in_message()) {
    return;
  }
  const Reception reception = inbound_.execute(packet);
  if (reception.executed()) return;
  // The sender is told nothing. Only a receive request that is itself at fault is an error, and ours (IBTA
  // volume 1, 9.8.3); any other request is used for the next message.
  if (reception.receive_status == IBV_WC_LOC_PROT_ERR) {
    inbound_.fail_receive(IBV_WC_LOC_PROT_ERR);
    fail();
    return;
  }
  const auto why = reception.result == Reception::Result::kNotReady ? protocol::TraceDrop::kNoReceive
                                                                    : protocol::TraceDrop::kBrokenMessage;
  note_dropped(why, packet.headers);
  say_dropped(why, packet, reception.code);
  count(kDroppedDatagrams);
  inbound_.abandon();
}

void UcQueuePair::say_dropped(protocol::TraceDrop why, const roce::Packet& packet, roce::NakCode code) try {
  // A missing receive request is normal for this service, and usually no mistake.
  const bool is_common = why == protocol::TraceDrop::kNoReceive;
  const LogLevel level = is_common ? LogLevel::kWarning : LogLevel::kError;
  if (!is_drop_to_be_said(why, level)) return;
  log(level, "{}",
      what_dropped(*this, attributes().path.destination, attributes().destination,
                   is_common ? "no receive request was posted: post more of them"
                             : why_refused(*this, packet, code, inbound_.misfit())));
} catch (const std::bad_alloc&) {  // out of memory: nothing is logged
}

// ---- reports and flow control

void UcQueuePair::on_report(const roce::Packet& packet, TimePoint now) {
  const auto report = ReceiverReport::read(packet.payload);
  if (!report || !flow_.on_report(*report, now)) return;
  // A peer that sends reports also sends CNPs, so packets may be ECN-capable.
  CongestionNotices::allow_marks(attributes().path);
  if (!flow_.is_full()) paced_until_ = kNever;
  show_path();
}

// Accepts a PSN where the peer was at most kOvertaken packets ago: only the peer can know it.
void UcQueuePair::on_heard(Psn psn) {
  const int32_t behind = expected_ - (psn + Sack::kPast);
  if (behind >= 0 && behind < kOvertaken) owed_.on_heard();
}

SendStatus UcQueuePair::send_words() {
  SendStatus status = SendStatus::kSent;
  if (notices_.is_due()) status = notices_.send(*this);
  if (status != SendStatus::kBusy && owed_.is_due()) status = send_receipt();
  if (status != SendStatus::kBusy && flow_.owes_thanks()) status = send_thanks();
  return status;
}

SendStatus UcQueuePair::send_receipt() {
  ReceiverReport report{.expected = expected_, .missing = owed_.missing(), .incast = {}};
  if (config().incast != nullptr) report.incast = config().incast->get();
  std::array<std::byte, ReceiverReport::kBytes> space;
  report.write(space);
  const SendStatus status = send_word(roce::kReceiverReportOpcode, expected_ - Sack::kPast, space);
  if (status != SendStatus::kBusy) owed_.on_sent();
  return status;
}

SendStatus UcQueuePair::send_thanks() {
  const SendStatus status = send_word(roce::kSackConfirmationOpcode, next_ - Sack::kPast);
  if (status != SendStatus::kBusy) flow_.on_thanks_sent();
  return status;
}

void UcQueuePair::show_path() {
  if (config().path_numbers == nullptr) return;
  transport::show_path(*config().path_numbers, flow_.path(), flow_.in_flight());
}

void UcQueuePair::begin_flow(Psn first) {
  const QpConfig& c = config();
  flow_.begin(route().traits, {c.congestion, c.repairs, attributes().path_mtu, c.least_ack_timeout}, first);
  show_path();
}

// ---- sending side

bool UcQueuePair::may_send() const {
  if (send_queue_empty() || paced_until_ != kNever || flow_.is_full()) return false;
  // In SQD, the request that has started is sent to its end.
  return state() == IBV_QPS_RTS || (state() == IBV_QPS_SQD && has_begun());
}

bool UcQueuePair::has_urgent() const {
  if (state() == IBV_QPS_ERR) return has_to_flush();
  if (owes_word() && receives_packets(state())) return true;
  return may_send() || (state() == IBV_QPS_SQE && !send_queue_empty());
}

TransmitResult UcQueuePair::transmit(TimePoint now, uint32_t budget, bool) {
  if (owes_word() && receives_packets(state()) && send_words() == SendStatus::kBusy) {
    return TransmitResult::kBusy;
  }
  const TransmitResult result = send_posted(now, budget);
  flow_.end_run(send_queue_empty());
  if (result == TransmitResult::kIdle) flush_stopped();
  return result;
}

TransmitResult UcQueuePair::send_posted(TimePoint now, uint32_t budget) {
  queues::SendQueue& queue = send_queue();
  while (may_send()) {
    if (!flow_.may_send(now)) {
      paced_until_ = flow_.may_send_at();
      return TransmitResult::kPaced;
    }
    if (budget-- == 0) return TransmitResult::kMore;
    const SendWqe& wqe = queue.at(queue.consumed());
    if (is_local(wqe)) {
      if (!execute_here(wqe)) return TransmitResult::kMore;
      continue;
    }
    if (!is_data(wqe) || wqe.opcode == IBV_WR_SEND_WITH_INV) {
      fail_send(IBV_WC_LOC_QP_OP_ERR);
      break;
    }
    if (wqe.length > kMaxMessageBytes) {
      fail_send(IBV_WC_LOC_LEN_ERR);
      break;
    }
    const SendStatus status = send_packet(wqe, now);
    if (status == SendStatus::kBusy) return TransmitResult::kBusy;
    if (status == SendStatus::kFault) {
      fail_send(IBV_WC_LOC_PROT_ERR);
      break;
    }
    if (packet_ < packets_of(wqe, attributes().path_mtu)) continue;
    packet_ = 0;
    complete_sent(wqe);
  }
  return TransmitResult::kIdle;
}

void UcQueuePair::complete_sent(const SendWqe& wqe) {
  complete_send(wqe, IBV_WC_SUCCESS);
  if (state() == IBV_QPS_SQD && attributes().notify_drained) emit(IBV_EVENT_SQ_DRAINED);
}

// False: another process still uses the memory whose key was taken away.
bool UcQueuePair::execute_here(const SendWqe& wqe) {
  const memory::KeyTable& keys = *config().keys;
  if (users_ == 0) {
    if (const auto fault = execute_locally(*this, wqe)) {
      fail_send(*fault);
      return true;
    }
    users_ = keys.users();
  }
  if (!keys.are_gone(users_)) return false;
  users_ = 0;
  complete_sent(wqe);
  return true;
}

SendStatus UcQueuePair::send_packet(const SendWqe& wqe, TimePoint now) {
  DataPacket packet;
  if (!make_data_packet(*this, roce::Service::kUc, wqe, packet_, next_, 1, packet)) return SendStatus::kFault;
  packet.headers.ack_request = flow_.must_ask();
  const SendStatus status = send_out({attributes().path, packet.headers, packet.pieces.get(), packet.bytes});
  if (status != SendStatus::kSent) return status;
  ++packet_;
  ++next_;
  flow_.sent(packet.bytes, packet.headers.ack_request, now);
  count(kSentPackets);
  count(kSentBytes, packet.bytes);
  return status;
}

// Only before the first packet: packets on the new route would overtake those on the old one, which would
// then be lost.
void UcQueuePair::reroute() {
  const bool has_sent = state() != IBV_QPS_RTR && next_ != attributes().send_psn;
  if (!receives_packets(state()) || has_sent) return;
  find_route(attributes().path, attributes().destination);
  note_route();
  begin_flow(next_);
}

void UcQueuePair::on_enter(ibv_qp_state from, ibv_qp_state to) {
  if (to == IBV_QPS_RTR && from == IBV_QPS_INIT) {
    find_route(attributes().path, attributes().destination);
    note_route();
    expected_ = attributes().receive_psn;
    inbound_.abandon();
    established_ = false;
    owed_ = {};
    notices_ = {};
  }
  if (to == IBV_QPS_RTS && from == IBV_QPS_RTR) {
    next_ = attributes().send_psn;
    begin_flow(next_);
  }
  if (to == IBV_QPS_SQE || to == IBV_QPS_RESET || to == IBV_QPS_ERR) packet_ = 0;
  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) {
    paced_until_ = kNever;
    flow_.end();
    users_ = 0;
  }
  if (to == IBV_QPS_SQD && !has_begun() && attributes().notify_drained) emit(IBV_EVENT_SQ_DRAINED);
}

}  // namespace verbena::transport
