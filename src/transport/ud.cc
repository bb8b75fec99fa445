// SPDX-License-Identifier: Apache-2.0
#include "transport/ud.h"

#include <algorithm>

#include "roce/ip_header.h"
#include "transport/gather.h"
#include "transport/qp_state.h"

namespace verbena::transport {
namespace {

using roce::Operation;

// A Q_Key with its top bit set in a request stands for the QP's own (IBTA volume 1, 10.2.5): privileged ones
// are not for everyone.
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

Verdict UdQueuePair::on_packet(const IncomingPacket& incoming, TimePoint) {
  const roce::Headers& headers = incoming.packet.headers;
  if (!receives_packets(state())) return Verdict::kNotReady;
  if (headers.service() != roce::Service::kUd) return Verdict::kWrongService;
  if (!roce::is_default_pkey(headers.pkey)) return Verdict::kBadPkey;
  count(kReceivedPackets);
  count(kReceivedBytes, incoming.packet.payload.size());
  if (headers.destination == roce::kMulticastQpn) count(kMulticastReceived);
  // Silently dropped (IBTA volume 1, 9.8.3.1): a wrong Q_Key, no request to receive with, one too short. As
  // with Linux rxe, a stranger's datagram is no error of ours.
  if (headers.qkey != attributes().qkey || receives().current() == nullptr ||
      !fits(incoming.packet.payload.size())) {
    count(kDroppedDatagrams);
    return Verdict::kAccepted;
  }
  receive(incoming);
  return Verdict::kAccepted;
}

bool UdQueuePair::fits(size_t payload_bytes) {
  return total_length(receives().current()->sges()) >= kGrhBytes + payload_bytes;
}

void UdQueuePair::receive(const IncomingPacket& incoming) {
  const roce::Headers& headers = incoming.packet.headers;
  const queues::RecvWqe& wqe = *receives().current();
  const memory::PdId pd = receives().pd();
  std::byte grh[kGrhBytes];
  write_grh(incoming.path, incoming.udp_bytes, grh);

  const bool stored =
      scatter(*config().keys, pd, wqe.sges(), 0, grh) == ScatterResult::kDone &&
      scatter(*config().keys, pd, wqe.sges(), kGrhBytes, incoming.packet.payload) == ScatterResult::kDone;

  ibv_wc wc{};
  wc.opcode = IBV_WC_RECV;
  wc.status = stored ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR;
  wc.byte_len = kGrhBytes + static_cast<uint32_t>(incoming.packet.payload.size());
  wc.src_qp = headers.source.value();
  wc.wc_flags = IBV_WC_GRH;
  // The kernel's rxe reports the network header type here, and programs rely on it (UCX drops datagrams
  // otherwise).
  wc.sl = incoming.path.destination.is_ipv4() ? 2 : 1;
  if (headers.operation() == Operation::kSendOnlyImmediate) {
    wc.wc_flags |= IBV_WC_WITH_IMM;
    wc.imm_data = byteswap(headers.immediate);
  }
  complete_recv(wc, headers.solicited);
  if (!stored) fail();
}

bool UdQueuePair::has_urgent() const {
  if (state() == IBV_QPS_ERR) return has_to_flush();
  return (state() == IBV_QPS_RTS || state() == IBV_QPS_SQE) && !send_queue_empty();
}

TransmitResult UdQueuePair::transmit(TimePoint, uint32_t budget, bool) {
  queues::SendQueue& queue = send_queue();
  while (state() == IBV_QPS_RTS && !queue.empty()) {
    if (budget-- == 0) return TransmitResult::kMore;
    const queues::SendWqe& wqe = queue.at(queue.consumed());
    if (wqe.opcode != IBV_WR_SEND && wqe.opcode != IBV_WR_SEND_WITH_IMM) {
      fail_send(IBV_WC_LOC_QP_OP_ERR);
      break;
    }
    route_to(wqe);
    if (wqe.length > attributes().path_mtu) {
      fail_send(IBV_WC_LOC_LEN_ERR);
      break;
    }
    const SendStatus status = send(wqe);
    if (status == SendStatus::kBusy) return TransmitResult::kBusy;
    if (status == SendStatus::kFault) {
      fail_send(IBV_WC_LOC_PROT_ERR);
      break;
    }
    complete_send(wqe, IBV_WC_SUCCESS);
  }
  // A send error stops the send queue only (IBTA volume 1, 10.3.1: SQE).
  if (state() == IBV_QPS_SQE || state() == IBV_QPS_ERR) flush_send_queue();
  if (state() == IBV_QPS_ERR) flush_recv_queue();
  return TransmitResult::kIdle;
}

// A handle's route is looked up when a request first goes to it, and again after one to another.
void UdQueuePair::route_to(const queues::SendWqe& wqe) {
  const uint32_t slot = wqe.remote_qpn.slot();
  if (routed_to_ && routed_to_->slot == slot && routed_to_->path == wqe.path) return;
  find_route(wqe.path, wqe.remote_qpn);
  routed_to_ = {wqe.path, slot};
}

SendStatus UdQueuePair::send(const queues::SendWqe& wqe) {
  Pieces pieces;
  if (wqe.is_inline()) {
    if (wqe.length > 0) pieces.add({wqe.inline_data(), wqe.length});
  } else if (!gather(*config().keys, config().pd, wqe.sges(), 0, wqe.length, 0, pieces)) {
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
  headers.qkey = (wqe.remote_qkey & kControlledQkey) != 0 ? attributes().qkey : wqe.remote_qkey;
  headers.source = config().qpn;
  headers.immediate = byteswap(wqe.immediate);
  const SendStatus status = send_out({wqe.path, headers, pieces.get(), wqe.length});
  if (status != SendStatus::kSent) return status;
  ++next_;
  count(kSentPackets);
  count(kSentBytes, wqe.length);
  if (headers.destination == roce::kMulticastQpn) count(kMulticastSent);
  return status;
}

void UdQueuePair::fail_send(ibv_wc_status status) {
  complete_send(send_queue().at(send_queue().consumed()), status);
  enter(IBV_QPS_SQE);
}

void UdQueuePair::on_enter(ibv_qp_state from, ibv_qp_state to) {
  if (to == IBV_QPS_RTS && from == IBV_QPS_RTR) next_ = attributes().send_psn;
  if (to == IBV_QPS_RESET) routed_to_.reset();
  // Each request is complete as soon as it is sent, so nothing is left to drain.
  if (to == IBV_QPS_SQD && attributes().notify_drained) emit(IBV_EVENT_SQ_DRAINED);
}

}  // namespace verbena::transport
