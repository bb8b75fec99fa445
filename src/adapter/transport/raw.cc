// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/raw.h"

#include <mutex>

#include "adapter/transport/gather.h"
#include "adapter/transport/qp_state.h"

namespace verbena::transport {

namespace {

constexpr uint32_t kVlanTagAt = 12;

queues::Completion completion_of(const queues::RecvWqe& wqe, const FrameReceiptConfig& config,
                                 ibv_wc_status status) {
  queues::Completion entry;
  entry.wr_id = wqe.wr_id;
  entry.opcode = IBV_WC_RECV;
  entry.status = static_cast<uint8_t>(status);
  entry.qp_num = config.number;
  return entry;
}

// Time until a full device is tried again: about as long as a fast one takes to send a batch.
constexpr Duration kRetryInterval = std::chrono::microseconds(50);

}  // namespace

FrameReceipt receive_frame(queues::RecvQueue& queue, const FrameReceiptConfig& config,
                           memory::KeyFinder& keys, const IncomingFrame& frame) {
  if (queue.empty()) return FrameReceipt::kDropped;
  const bool strip = config.strips_vlan && frame.headers.key.has(ethernet::kVlan);
  const ConstBytes front = frame.bytes.first(strip ? kVlanTagAt : 0);
  const ConstBytes rest = frame.bytes.subspan(strip ? kVlanTagAt + ethernet::kVlanTagBytes : 0);
  const auto bytes = static_cast<uint32_t>(front.size() + rest.size());
  const queues::RecvWqe& wqe = queue.at(queue.consumed());
  if (total_length(wqe.sges()) < bytes) return FrameReceipt::kDropped;

  const auto store = [&](uint64_t offset, ConstBytes data) {
    return scatter(keys, config.pd, wqe.sges(), offset, data) == ScatterResult::kDone;
  };
  const bool stored = store(0, front) && store(front.size(), rest);
  queues::Completion entry = completion_of(wqe, config, stored ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR);
  entry.byte_len = bytes;
  entry.flow_tag = frame.flow_tag;
  if (strip) entry.cvlan = byteswap(frame.headers.key.vlan_tag);
  if (frame.checksums_good) entry.wc_flags |= IBV_WC_IP_CSUM_OK;
  queue.consume();
  if (!config.cq->push(entry, false)) return FrameReceipt::kLost;
  return stored ? FrameReceipt::kStored : FrameReceipt::kFault;
}

void flush_frame_receives(queues::RecvQueue& queue, const FrameReceiptConfig& config) {
  while (!queue.empty()) {
    config.cq->push(completion_of(queue.at(queue.consumed()), config, IBV_WC_WR_FLUSH_ERR), true);
    queue.consume();
  }
}

void ReceiveWorkQueue::enter(ibv_wq_state next) {
  state_.store(next, std::memory_order_release);
  // Waits for a thread that posts and has read the old state; later ones see the new state.
  { const std::lock_guard wait(lock_); }
  if (next == IBV_WQS_RESET) queue_.clear();
  if (next == IBV_WQS_ERR) flush();
}

void ReceiveWorkQueue::flush() {
  flush_frame_receives(queue_, config_);
}

bool ReceiveWorkQueue::on_frame(const IncomingFrame& frame) {
  if (state() != IBV_WQS_RDY) return false;
  const FrameReceipt report = receive_frame(queue_, config_, keys_, frame);
  if (report == FrameReceipt::kFault || report == FrameReceipt::kLost) {
    enter(IBV_WQS_ERR);
    if (listener_ != nullptr) listener_->on_work_queue_fatal();
  }
  return report != FrameReceipt::kDropped;
}

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
