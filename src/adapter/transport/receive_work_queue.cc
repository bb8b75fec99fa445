// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/receive_work_queue.h"

#include <mutex>

namespace verbena::transport {

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
