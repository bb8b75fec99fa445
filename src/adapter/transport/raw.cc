// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/raw.h"

#include "adapter/transport/gather.h"
#include "adapter/transport/qp_state.h"

namespace verbena::transport {
namespace {

// Time until a full device is tried again: about as long as a fast one takes to send a batch.
constexpr Duration kRetryInterval = std::chrono::microseconds(50);

}  // namespace

void RawQueuePair::on_frame(const IncomingFrame& frame) {
  if (!scaling_ && !receives_packets(state())) return;
  count(kReceivedPackets);
  count(kReceivedBytes, frame.bytes.size());
  count(kReceivedOctets, frame.bytes.size());
  if (scaling_) {
    if (!scaling_->choose(frame.headers.key).on_frame(frame)) count(kDroppedDatagrams);
    return;
  }
  switch (receive_frame(recv_queue(), receipt_, keys(), frame)) {
    case FrameReceipt::kStored:
      count(kCompletions);
      break;
    case FrameReceipt::kDropped:
      count(kDroppedDatagrams);
      break;
    case FrameReceipt::kLost:
      fail(IBV_EVENT_QP_FATAL);
      break;
    case FrameReceipt::kFault:
      count(kCompletions);
      fail();
      break;
  }
}

uint32_t RawQueuePair::room_for_frames() {
  if (scaling_ || !receives_packets(state())) return UINT32_MAX;
  const auto left = [this] { return recv_queue().posted() - recv_queue().consumed(); };
  if (left() == 0) {
    // The posting thread publishes (publish_receives()), then reads waited_for(). This thread sets starving_,
    // then reads posted(). All four accesses are sequentially consistent, so that one of the two sees the
    // other.
    starving_.store(true, std::memory_order_seq_cst);
    if (left() == 0) return 0;
  }
  starving_.store(false, std::memory_order_relaxed);
  return left();
}

bool RawQueuePair::has_urgent() const {
  if (state() == IBV_QPS_ERR) return has_to_flush();
  if (state() == IBV_QPS_SQE) return !send_queue_empty();
  return state() == IBV_QPS_RTS && !send_queue_empty() && retry_at_ == kNever;
}

void RawQueuePair::on_timer(TimePoint now) {
  if (retry_at_ <= now) retry_at_ = kNever;
}

TransmitResult RawQueuePair::transmit(TimePoint now, uint32_t budget, bool) {
  while (state() == IBV_QPS_RTS && !send_queue_empty() && retry_at_ == kNever) {
    if (budget == 0) return TransmitResult::kMore;
    budget -= send_batch(now, budget);
  }
  flush_stopped();
  return TransmitResult::kIdle;
}

// Sends some requests and completes them; returns how many it looked at. A request completes only after its
// frame was sent: the application may then overwrite the frame's memory.
uint32_t RawQueuePair::send_batch(TimePoint now, uint32_t most) {
  queues::SendQueue& queue = send_queue();
  const uint32_t first = queue.consumed();
  const uint32_t wanted = std::min(most, queue.posted() - first);
  uint32_t added = 0;
  ibv_wc_status bad = IBV_WC_SUCCESS;
  RateLimit limit = limit_;  // as it will be after these frames
  while (added < wanted && limit.may_send(now) && add(queue.at(first + added), bad) == Added::kYes) {
    limit.sent(queue.at(first + added).length, now);
    ++added;
  }

  const FrameSink::Flushed flushed = sink_->flush();
  finish(flushed.sent, now);
  switch (flushed.status) {
    case FrameStatus::kSent:
      if (bad != IBV_WC_SUCCESS) fail_send(bad);
      if (!limit_.may_send(now)) retry_at_ = limit_.due();
      break;
    case FrameStatus::kBusy:
      retry_at_ = now + kRetryInterval;
      break;
    case FrameStatus::kFault:
      fail_send(IBV_WC_LOC_PROT_ERR);
      break;
    case FrameStatus::kBadLength:
      fail_send(IBV_WC_LOC_LEN_ERR);
      break;
  }
  return std::max(added, 1u);
}

RawQueuePair::Added RawQueuePair::add(const queues::SendWqe& wqe, ibv_wc_status& bad) {
  if (wqe.opcode != IBV_WR_SEND) {
    bad = IBV_WC_LOC_QP_OP_ERR;
    return Added::kBad;
  }
  Pieces pieces;
  if (wqe.is_inline()) {
    if (wqe.length > 0) pieces.add({wqe.inline_data(), wqe.length});
  } else if (!gather(keys(), config().pd, wqe.sges(), 0, wqe.length, 0, pieces)) {
    bad = IBV_WC_LOC_PROT_ERR;
    return Added::kBad;
  }
  const OutgoingFrame frame{pieces.get(), wqe.length, wqe.has_flag(IBV_SEND_IP_CSUM)};
  return sink_->add(frame) ? Added::kYes : Added::kNoRoom;
}

void RawQueuePair::finish(uint32_t frames, TimePoint now) {
  queues::SendQueue& queue = send_queue();
  for (; frames > 0; --frames) {
    const queues::SendWqe& wqe = queue.at(queue.consumed());
    count(kSentPackets);
    count(kSentBytes, wqe.length);
    count(kSentOctets, wqe.length);
    limit_.sent(wqe.length, now);
    complete_send(wqe, IBV_WC_SUCCESS);
  }
}

void RawQueuePair::on_enter(ibv_qp_state, ibv_qp_state to) {
  retry_at_ = kNever;
  if (to == IBV_QPS_RESET) limit_.set(0, 0);
  // Requests complete as soon as they are sent, so nothing is left to drain.
  if (to == IBV_QPS_SQD && attributes().notify_drained) emit(IBV_EVENT_SQ_DRAINED);
}

}  // namespace verbena::transport
