// SPDX-License-Identifier: Apache-2.0
// Requests of one packet that nothing stands in the way of. Where messages go by memory, what transmit() asks
// of each packet takes longer than the message.
#include "transport/requester.h"
#include "transport/send_request.h"

namespace verbena::transport {

using queues::SendWqe;
using roce::Operation;

namespace {

// Packets, or what counts as one in a copy.
constexpr uint32_t kMostAtOnce = 64;

}  // namespace

// Everything that was posted before is on its way or done, and none of it has to be repeated.
bool Requester::may_send_simply() const {
  return running_ && cursor_ == assigned_ && next_ == highest_ && !stopped_ && rnr_deadline_ == kNever &&
         !holds_new() && qp_.state() == IBV_QPS_RTS;
}

bool Requester::is_simple(const SendWqe& wqe) const {
  const bool sends = wqe.opcode == IBV_WR_SEND || wqe.opcode == IBV_WR_SEND_WITH_IMM;
  return sends && wqe.num_sge <= 1 && wqe.length <= mtu() &&
         (!wqe.has_flag(IBV_SEND_FENCE) || reads_outstanding_ == 0);
}

bool Requester::send_simple(TimePoint now, std::optional<Acknowledgement>& acknowledgement) {
  const uint32_t posted = ring().posted();
  if (cursor_ == posted) return true;
  if (!may_send_simply()) return false;
  for (uint32_t budget = kMostAtOnce; cursor_ != posted;) {
    if (budget == 0) return false;
    SendWqe& wqe = ring().at(cursor_);
    if (qp_.route().direct != nullptr && may_go_direct(wqe)) {
      direct_refused_ = !go_direct(wqe, budget);
      if (direct_refused_ || !running_) return false;
      continue;
    }
    if (!is_simple(wqe) || !window_allows(wqe.length + sizes_.charge)) return false;
    if (next_ - unacked_ >= sizes_.most_packets && inflight_ > 0) return false;
    if (send_one_packet(wqe, acknowledgement) != SendStatus::kSent) return false;
    await_acknowledgement(now);
    --budget;
  }
  return true;
}

// The request gets its PSN only if it has been sent: transmit() begins with it otherwise.
SendStatus Requester::send_one_packet(SendWqe& wqe, std::optional<Acknowledgement>& acknowledgement) {
  const uint32_t bytes = wqe.length;
  ConstBytes piece(wqe.inline_data(), bytes);
  if (!wqe.is_inline() && bytes > 0) {
    const std::byte* const from = local_memory(*qp_.config().keys, qp_.config().pd, wqe.sges()[0], bytes, 0);
    if (from == nullptr) return SendStatus::kFault;
    piece = {from, bytes};
  }
  const bool immediate = wqe.opcode == IBV_WR_SEND_WITH_IMM;
  roce::Headers headers =
      headers_for(immediate ? Operation::kSendOnlyImmediate : Operation::kSendOnly, next_);
  headers.pad = roce::padding_of(bytes);
  headers.solicited = wqe.has_flag(IBV_SEND_SOLICITED);
  headers.immediate = byteswap(wqe.immediate);
  headers.xrc_srq = wqe.remote_srqn;
  const bool is_last = cursor_ + 1 == ring().posted();
  headers.ack_request = is_last || must_ask(1, bytes, true);
  const SendStatus status = qp_.send_out(
      {qp_.attributes().path, headers, {&piece, 1}, bytes, 1, acknowledgement ? &*acknowledgement : nullptr});
  if (status != SendStatus::kSent) return status;
  acknowledgement.reset();
  const uint32_t cost = bytes + sizes_.charge;
  since_ack_request_ = headers.ack_request ? 0 : since_ack_request_ + cost;
  wqe.first_psn = wqe.last_psn = next_;
  wqe.executed = false;
  assigned_ = ++cursor_;
  next_new_ = highest_ = ++next_;
  inflight_ += cost;
  one_sided_run_ = 0;
  one_sided_bytes_ = 0;
  qp_.count(kSentPackets);
  qp_.count(kSentBytes, bytes);
  return status;
}

}  // namespace verbena::transport
