// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/ud.h"

#include <array>
#include <new>
#include <string>

#include "adapter/transport/error_words.h"
#include "adapter/transport/gather.h"
#include "adapter/transport/qp_state.h"
#include "base/format.h"
#include "wire/roce/ip_header.h"

namespace verbena::transport {
namespace {

using roce::Operation;

// Bit of a controlled Q_Key. A request with it uses the QP's own Q_Key (IBTA volume 1, 10.2.5): controlled
// Q_Keys are privileged.
constexpr uint32_t kControlledQkey = 0x80000000;

}  // namespace

void write_grh(const roce::Path& path, uint32_t udp_bytes, std::byte (&grh)[kGrhBytes]) {
  std::memset(grh, 0, sizeof grh);
  if (path.destination.is_ipv4()) {
    roce::write_ipv4_header(path, udp_bytes, grh + kGrhBytes - roce::kIpv4HeaderBytes);
  } else {
    roce::write_ipv6_header(path, udp_bytes, grh);
  }
}

// ---- receiving side

Verdict UdQueuePair::on_packet(const IncomingPacket& incoming, TimePoint now) {
  const roce::Headers& headers = incoming.packet.headers;
  if (!receives_packets(state())) return Verdict::kNotReady;
  const bool is_word = headers.opcode == roce::kReportRequestOpcode ||
                       headers.opcode == roce::kReceiverReportOpcode || headers.opcode == roce::kCnpOpcode;
  if (!is_word && headers.service() != roce::Service::kUd) return Verdict::kWrongService;
  if (!roce::is_default_pkey(headers.pkey)) return Verdict::kBadPkey;
  count_received(incoming);
  if (is_word) {
    on_word(incoming, now);
  } else {
    on_datagram(incoming, now);
  }
  return Verdict::kAccepted;
}

void UdQueuePair::on_datagram(const IncomingPacket& incoming, TimePoint now) {
  const roce::Headers& headers = incoming.packet.headers;
  if (headers.destination == roce::kMulticastQpn) count(kMulticastReceived);
  // Dropped silently (IBTA volume 1, 9.8.3.1): a wrong Q_Key, no receive request, or one too short. As with
  // Linux rxe, a stranger's datagram is not our error.
  if (headers.qkey != attributes().qkey) {
    return drop(protocol::TraceDrop::kBadQkey, incoming);
  }
  note_source(incoming, now);
  const queues::RecvWqe* const wqe = receives().current();
  if (wqe == nullptr) return drop(protocol::TraceDrop::kNoReceive, incoming);
  if (total_length(wqe->sges()) < kGrhBytes + incoming.packet.payload.size())
    return drop(protocol::TraceDrop::kBrokenMessage, incoming);
  receive(incoming);
}

void UdQueuePair::drop(protocol::TraceDrop why, const IncomingPacket& incoming) try {
  const roce::Headers& headers = incoming.packet.headers;
  count(kDroppedDatagrams);
  note_dropped(why, headers);
  // A missing receive request is normal for this service, and usually no mistake.
  const bool is_common = why == protocol::TraceDrop::kNoReceive;
  const LogLevel level = is_common ? LogLevel::kWarning : LogLevel::kError;
  if (!is_drop_to_be_said(why, level)) return;
  std::string reason = "no receive request was posted: post more of them";
  if (why == protocol::TraceDrop::kBadQkey) {
    reason = verbena::format(
        "its Q_Key is {:#x}, and this queue pair's {:#x} (IBV_QP_QKEY): both ends need the same",
        headers.qkey, attributes().qkey);
  } else if (!is_common) {
    reason = verbena::format("it has {} bytes behind {} of the GRH, and the receive request has room for {}",
                             incoming.packet.payload.size(), kGrhBytes,
                             total_length(receives().current()->sges()));
  }
  log(level, "{}", what_dropped(*this, incoming.path.source, headers.source, reason));
} catch (const std::bad_alloc&) {  // out of memory: nothing is logged
}

void UdQueuePair::receive(const IncomingPacket& incoming) {
  const roce::Headers& headers = incoming.packet.headers;
  const queues::RecvWqe& wqe = *receives().current();
  const memory::PdId pd = receives().pd();
  std::byte grh[kGrhBytes];
  write_grh(incoming.path, incoming.udp_bytes, grh);

  const bool stored =
      scatter(keys(), pd, wqe.sges(), 0, grh) == ScatterResult::kDone &&
      scatter(keys(), pd, wqe.sges(), kGrhBytes, incoming.packet.payload) == ScatterResult::kDone;

  ibv_wc wc{};
  wc.opcode = IBV_WC_RECV;
  wc.status = stored ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR;
  wc.byte_len = kGrhBytes + static_cast<uint32_t>(incoming.packet.payload.size());
  wc.src_qp = headers.source.value();
  wc.wc_flags = IBV_WC_GRH;
  // The kernel's rxe reports the network header type in `sl`, and programs rely on it (UCX drops datagrams
  // otherwise).
  wc.sl = incoming.path.destination.is_ipv4() ? 2 : 1;
  if (headers.operation() == Operation::kSendOnlyImmediate) {
    wc.wc_flags |= IBV_WC_WITH_IMM;
    wc.imm_data = byteswap(headers.immediate);
  }
  complete_recv(wc, headers.solicited);
  if (!stored) fail();
}

// ---- reports and flow control

// nullptr: out of memory, or reports are not used.
DatagramSources* UdQueuePair::sources() {
  if (!sources_ && config().repairs) sources_.reset(new (std::nothrow) DatagramSources);
  return sources_.get();
}

// Counts every datagram that came, whether or not there is a receive request: that is the program's affair.
void UdQueuePair::note_source(const IncomingPacket& incoming, TimePoint now) {
  const roce::Headers& headers = incoming.packet.headers;
  if (headers.destination == roce::kMulticastQpn) return;
  if (CongestionNotices::is_marked(incoming.path) && sources() != nullptr) {
    count_on_path(kPathMarkedPackets);
    count(kMarkedPackets);
    sources_->on_marked(incoming.path, headers.source, now);
  }
  if (!sources_) return;
  DatagramSource* const source = sources_->find(incoming.path, headers.source);
  if (source == nullptr) return;
  ++source->come;
  IncastMeter* const meter = config().incast;
  const bool has_news =
      meter != nullptr && source->incast.on_packet(*meter, incoming.packet.payload.size(), now);
  if (has_news && source->has_asked) sources_->owe(*source);
}

// Ignores control packets to a multicast group: Verbena sends none.
void UdQueuePair::on_word(const IncomingPacket& incoming, TimePoint now) {
  if (incoming.packet.headers.destination == roce::kMulticastQpn) return;
  switch (incoming.packet.headers.opcode) {
    case roce::kReportRequestOpcode:
      return on_request(incoming);
    case roce::kReceiverReportOpcode:
      return on_report(incoming, now);
    default:
      return on_notice(incoming.path.source, now);
  }
}

void UdQueuePair::on_request(const IncomingPacket& incoming) {
  const auto request = ReportRequest::read(incoming.packet.payload);
  if (!request || request->qkey != attributes().qkey || sources() == nullptr) return;
  sources_->on_request(*request, incoming.path);
}

void UdQueuePair::on_report(const IncomingPacket& incoming, TimePoint now) {
  const auto answer = DatagramReport::read(incoming.packet.payload);
  if (!answer || !flows_) return;
  DatagramFlow* const flow = flows_->find(incoming.path.source, answer->receiver);
  if (flow == nullptr) return;
  const QpConfig& c = config();
  const ReceiverDrivenFlow::Settings settings{c.congestion, c.repairs, attributes().path_mtu,
                                              c.least_ack_timeout};
  if (!flow->on_report(answer->report, settings, now)) return;
  waits_until_ = kNever;
  if (c.path_numbers != nullptr) show_path(*c.path_numbers, flow->path(), flow->in_flight());
}

// A CNP says which destination's packets were marked, but not which queue pair's.
void UdQueuePair::on_notice(const roce::Address& from, TimePoint now) {
  count_on_path(kPathCongestionNotices);
  count(kNoticesReceived);
  if (flows_) flows_->for_each_at(from, [now](DatagramFlow& flow) { flow.on_mark(now); });
}

SendStatus UdQueuePair::send_words() {
  while (owes_word()) {
    DatagramSource& source = sources_->first_due();
    if (send_words_to(source) == SendStatus::kBusy) return SendStatus::kBusy;
    sources_->settle(source);
  }
  return SendStatus::kSent;
}

SendStatus UdQueuePair::send_words_to(DatagramSource& source) {
  const Route& route = known_route(source.back, source.qpn);
  if (route.traits.lossless) return SendStatus::kSent;  // shared memory needs no reports
  SendStatus status = SendStatus::kSent;
  if (source.notices.is_due()) status = source.notices.send(*this, route, source.back, source.qpn);
  if (status != SendStatus::kBusy && source.owes_receipt) status = send_receipt(route, source);
  if (status == SendStatus::kBusy) {
    // Waits until this route has room.
    forget_route();
    go_by(route);
  }
  return status;
}

SendStatus UdQueuePair::send_receipt(const Route& route, DatagramSource& source) {
  DatagramReport answer{{.expected = source.asked_with, .missing = source.missing, .incast = {}},
                        config().qpn};
  if (config().incast != nullptr) answer.report.incast = config().incast->get();
  std::array<std::byte, DatagramReport::kBytes> space;
  answer.write(space);
  roce::Headers headers;
  headers.opcode = roce::kReceiverReportOpcode;
  headers.destination = source.qpn;
  const SendStatus status = send_word(route, source.back, headers, space);
  if (status != SendStatus::kBusy) source.owes_receipt = false;
  return status;
}

// Requests a report about the datagrams to routed_to_, if one is due.
SendStatus UdQueuePair::ask_for_receipt() {
  if (flow_ == nullptr || !flow_->owes_request()) return SendStatus::kSent;
  std::array<std::byte, ReportRequest::kBytes> space;
  ReportRequest{flow_->next(), config().qpn, routed_to_->qkey}.write(space);
  roce::Headers headers;
  headers.opcode = roce::kReportRequestOpcode;
  headers.destination = routed_to_->qpn;
  const SendStatus status = send_word(route(), routed_to_->path, headers, space);
  if (status != SendStatus::kBusy) flow_->on_requested();
  return status;
}

// ---- sending side

bool UdQueuePair::has_urgent() const {
  if (state() == IBV_QPS_ERR) return has_to_flush();
  if (owes_word() && receives_packets(state())) return true;
  if (send_queue_empty()) return false;
  return state() == IBV_QPS_SQE || (state() == IBV_QPS_RTS && waits_until_ == kNever);
}

TransmitResult UdQueuePair::transmit(TimePoint now, uint32_t budget, bool) {
  if (owes_word() && receives_packets(state()) && send_words() == SendStatus::kBusy) {
    return wait_for_port(now);
  }
  const TransmitResult result = send_posted(now, budget);
  if (flow_ != nullptr) flow_->end_run(send_queue_empty());
  if (result != TransmitResult::kIdle) return result;
  flush_stopped();
  return TransmitResult::kIdle;
}

TransmitResult UdQueuePair::send_posted(TimePoint now, uint32_t budget) {
  queues::SendQueue& queue = send_queue();
  while (state() == IBV_QPS_RTS && !queue.empty() && waits_until_ == kNever) {
    if (budget-- == 0) return TransmitResult::kMore;
    const queues::SendWqe& wqe = queue.at(queue.consumed());
    if ((wqe.opcode != IBV_WR_SEND && wqe.opcode != IBV_WR_SEND_WITH_IMM) || wqe.is_refused()) {
      fail_send(IBV_WC_LOC_QP_OP_ERR);
      break;
    }
    if (wqe.length > attributes().path_mtu) {
      fail_send(IBV_WC_LOC_LEN_ERR);
      break;
    }
    route_to(wqe);
    if (const auto held_back = hold_back(now)) {
      if (may_wait(now)) return *held_back;
      waits_until_ = kNever;
      route_to(wqe);  // hold_back() forgets a route that is coming
    }
    const SendStatus status = send(wqe);
    if (status == SendStatus::kBusy) {
      if (!route().traits.lossless) return wait_for_port(now);
      if (may_wait(now)) return TransmitResult::kBusy;
      count(kDroppedDatagrams);
      complete_send(wqe, IBV_WC_SUCCESS);  // lost, as by an adapter whose receiver is too slow
      held_.end(now);
      continue;
    }
    held_.end(now);
    if (status == SendStatus::kFault) {
      fail_send(IBV_WC_LOC_PROT_ERR);
      break;
    }
    if (flow_ != nullptr) flow_->sent(wqe.length, now);
    complete_send(wqe, IBV_WC_SUCCESS);
    if (ask_for_receipt() == SendStatus::kBusy) return TransmitResult::kBusy;
  }
  return TransmitResult::kIdle;
}

// A port without room is not the receiver's doing. So no budget limits this wait, and no timer ends it: a
// deadline that has passed would bring the timer back at once, again and again.
TransmitResult UdQueuePair::wait_for_port(TimePoint now) {
  held_.end(now);
  return TransmitResult::kBusy;
}

bool UdQueuePair::may_wait(TimePoint now) {
  held_.begin(now);
  if (now < held_.until()) return true;
  has_several_ = has_several_ || do_others_wait();
  if (has_several_) return false;
  held_ = HoldBudget();
  held_.begin(now);
  return true;
}

// Whether a posted request goes to another destination than the oldest one.
bool UdQueuePair::do_others_wait() {
  const queues::SendQueue& queue = send_queue();
  const queues::SendWqe& oldest = queue.at(queue.consumed());
  for (uint32_t i = 1; i < queue.waiting(); ++i) {
    const queues::SendWqe& wqe = queue.at(queue.consumed() + i);
    if (wqe.remote_qpn != oldest.remote_qpn || wqe.path != oldest.path) return true;
  }
  return false;
}

// Whether the oldest request must wait; if so, the result of transmit().
std::optional<TransmitResult> UdQueuePair::hold_back(TimePoint now) {
  if (is_route_coming()) {
    forget_route();
    waits_until_ = now + kRouteInterval;
    return TransmitResult::kPaced;
  }
  if (flow_ == nullptr) return std::nullopt;
  const TimePoint at = flow_->may_send_at(now);
  if (ask_for_receipt() == SendStatus::kBusy) return TransmitResult::kBusy;
  if (at <= now) return std::nullopt;
  waits_until_ = at;
  return TransmitResult::kPaced;
}

// Without a wire, there is no route until both processes have agreed on shared memory.
bool UdQueuePair::is_route_coming() const {
  return route().port == Route::kNoPort && config().routes != nullptr &&
         config().routes->is_coming(routed_to_->path, routed_to_->qpn);
}

// Looks up the route of a request's address handle, unless the request before used the same.
void UdQueuePair::route_to(const queues::SendWqe& wqe) {
  const bool same_path = routed_to_ && routed_to_->path == wqe.path;
  if (same_path && routed_to_->qpn == wqe.remote_qpn) return;
  if (routed_to_) has_several_ = true;
  if (flow_ != nullptr) flow_->end_run(true);
  if (!same_path || routed_to_->qpn.slot() != wqe.remote_qpn.slot()) find_route(wqe.path, wqe.remote_qpn);
  routed_to_ = {wqe.path, wqe.remote_qpn, qkey_of(wqe)};
  flow_ = flow_to(*routed_to_);
}

void UdQueuePair::forget_route() {
  routed_to_.reset();
  flow_ = nullptr;
  waits_until_ = kNever;
}

// nullptr: nothing limits what is sent there, or out of memory.
DatagramFlow* UdQueuePair::flow_to(const Destination& destination) {
  if (route().traits.lossless || !config().repairs || destination.path.destination.is_multicast()) {
    return nullptr;
  }
  if (!flows_) flows_.reset(new (std::nothrow) RecentPeers<DatagramFlow>);
  if (!flows_) return nullptr;
  const auto [flow, is_new] = flows_->get(destination.path.destination, destination.qpn);
  if (is_new) flow->begin(next_, route().traits);
  return flow;
}

uint32_t UdQueuePair::qkey_of(const queues::SendWqe& wqe) const {
  return (wqe.remote_qkey & kControlledQkey) != 0 ? attributes().qkey : wqe.remote_qkey;
}

SendStatus UdQueuePair::send(const queues::SendWqe& wqe) {
  Pieces pieces;
  if (wqe.is_inline()) {
    if (wqe.length > 0) pieces.add({wqe.inline_data(), wqe.length});
  } else if (!gather(keys(), config().pd, wqe.sges(), 0, wqe.length, 0, pieces)) {
    return SendStatus::kFault;
  }
  const bool immediate = wqe.opcode == IBV_WR_SEND_WITH_IMM;
  roce::Headers headers;
  headers.opcode =
      roce::make_opcode(roce::Service::kUd, immediate ? Operation::kSendOnlyImmediate : Operation::kSendOnly);
  headers.destination = wqe.remote_qpn;
  headers.psn = next_;
  headers.pad = roce::padding_of(wqe.length);
  headers.solicited = wqe.has_flag(IBV_SEND_SOLICITED);
  headers.qkey = qkey_of(wqe);
  headers.source = config().qpn;
  headers.immediate = byteswap(wqe.immediate);
  const SendStatus status = send_out({wqe.path, headers, pieces.get(), wqe.length});
  if (status != SendStatus::kSent) return status;
  ++next_;
  routed_to_->qkey = headers.qkey;
  count(kSentPackets);
  count(kSentBytes, wqe.length);
  if (headers.destination == roce::kMulticastQpn) count(kMulticastSent);
  return status;
}

void UdQueuePair::on_enter(ibv_qp_state from, ibv_qp_state to) {
  if (to == IBV_QPS_RTS && from == IBV_QPS_RTR) next_ = attributes().send_psn;
  if (to == IBV_QPS_RESET) {
    forget_route();
    sources_.reset();
    flows_.reset();
    has_several_ = false;
  }
  if (to != IBV_QPS_RTS) {
    waits_until_ = kNever;
    held_ = HoldBudget();
  }
  // Requests complete as soon as they are sent, so nothing is left to drain.
  if (to == IBV_QPS_SQD && attributes().notify_drained) emit(IBV_EVENT_SQ_DRAINED);
}

}  // namespace verbena::transport
