// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "adapter/transport/frame_receipt.h"
#include "adapter/transport/frame_sink.h"
#include "adapter/transport/queue_pair.h"
#include "adapter/transport/rate_limit.h"
#include "adapter/transport/receive_work_queue.h"

namespace verbena::transport {

// A queue pair for raw Ethernet (IBV_QPT_RAW_PACKET): each send request is a whole frame, complete when sent;
// each receive request takes one that flow rules steer here. RoCEv2 packets are none of its business.
class RawQueuePair : public QueuePair {
 public:
  RawQueuePair(const QpConfig& config, queues::SendQueue send_queue, queues::RecvQueue recv_queue,
               FrameSink* sink, bool strips_vlan)
      : QueuePair(config, std::move(send_queue), std::move(recv_queue)),
        receipt_{config.pd, config.qpn.value(), strips_vlan, config.recv_cq},
        sink_(sink) {}

  // One that only receives, in whatever state, and spreads what it receives over work queues.
  RawQueuePair(const QpConfig& config, ReceiveScaling scaling)
      : QueuePair(config, {}, {}), sink_(nullptr), scaling_(std::move(scaling)) {}

  void on_frame(const IncomingFrame& frame);

  // How many frames it can take now. When there are none, the thread that posts a request hears that it is
  // waited for (waited_for()). One that does not receive, or spreads what it does, can always drop some.
  uint32_t room_for_frames();

  // Any thread, after posting: whether frames wait for what was posted. True once.
  bool waited_for() {
    return starving_.load(std::memory_order_seq_cst) && starving_.exchange(false, std::memory_order_seq_cst);
  }

  // How fast it may send, in kilobits a second (0: no limit), and how many bytes at once (0: the default).
  // RESET takes it back.
  void limit_rate(uint32_t rate, uint32_t burst) {
    limit_.set(rate, burst);
    retry_at_ = kNever;
  }

  Verdict on_packet(const IncomingPacket&, TimePoint) override { return Verdict::kWrongService; }
  // Frames go to the QP's own sink: it has no route.
  TransmitResult transmit(TimePoint now, uint32_t budget, bool with_acknowledgements) override;
  bool has_urgent() const override;
  bool has_acknowledgement() const override { return false; }
  bool has_outstanding() const override { return false; }
  TimePoint deadline() const override { return retry_at_; }
  void on_timer(TimePoint now) override;
  roce::Psn next_send_psn() const override { return {}; }
  roce::Psn next_receive_psn() const override { return {}; }

 protected:
  void on_enter(ibv_qp_state from, ibv_qp_state to) override;

 private:
  enum class Added : uint8_t { kYes, kNoRoom, kBad };

  uint32_t send_batch(TimePoint now, uint32_t most);
  Added add(const queues::SendWqe& wqe, ibv_wc_status& bad);
  void finish(uint32_t frames, TimePoint now);
  void fail_send(ibv_wc_status status);

  const FrameReceiptConfig receipt_;
  FrameSink* const sink_;
  const std::optional<ReceiveScaling> scaling_;
  std::atomic<bool> starving_{false};  // frames wait for a receive request
  RateLimit limit_;
  TimePoint retry_at_ = kNever;  // the sink was full, or it is not yet time for more: not before then
};

}  // namespace verbena::transport
