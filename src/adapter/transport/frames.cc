// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/frames.h"

#include <mutex>

#include "adapter/transport/gather.h"

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

}  // namespace verbena::transport
