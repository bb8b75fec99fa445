// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "adapter/transport/frames.h"
#include "adapter/transport/queue_pair.h"
#include "base/time.h"

namespace verbena::transport {

// Packet pacing (ibv_modify_qp_rate_limit(3)): when the next frame may be sent. Each byte takes its time at
// the rate. Unused time is saved up for one burst at most.
class RateLimit {
 public:
  // Default burst, as the time that it takes at the rate: about as long as a busy machine keeps a sender
  // waiting. A default burst has at least kLeastBurstBytes.
  static constexpr Duration kDefaultBurst = std::chrono::milliseconds(1);
  static constexpr uint32_t kLeastBurstBytes = 16 * 1024;

  // Sets the rate in kilobits per second (0: unlimited) and the burst in bytes (0: the default).
  void set(uint32_t rate, uint32_t burst) {
    rate_ = rate;
    burst_ = burst != 0 ? time_of(burst) : std::max(kDefaultBurst, time_of(kLeastBurstBytes));
    due_ = TimePoint{};
  }
  uint32_t rate() const { return rate_; }

  bool may_send(TimePoint now) const { return rate_ == 0 || due_ <= now; }
  // Notes that a frame of `bytes` bytes leaves. REQUIRES: may_send(now)
  void sent(uint32_t bytes, TimePoint now) {
    if (rate_ != 0) due_ = std::max(due_, now - burst_) + time_of(bytes);
  }
  // When may_send() becomes true, if it is false.
  TimePoint due() const { return due_; }

 private:
  Duration time_of(uint32_t bytes) const {
    return rate_ == 0 ? Duration{} : Duration(std::chrono::nanoseconds(uint64_t{bytes} * 8'000'000 / rate_));
  }

  uint32_t rate_ = 0;
  Duration burst_{};
  TimePoint due_{};
};

// A queue pair for raw Ethernet (IBV_QPT_RAW_PACKET): each send request is a whole Ethernet frame, and
// completes once the frame has left. Each receive request takes one frame that flow rules steer here. Does
// not handle RoCEv2 packets.
class RawQueuePair : public QueuePair {
 public:
  RawQueuePair(const QpConfig& config, queues::SendQueue send_queue, queues::RecvQueue recv_queue,
               FrameSink* sink, bool strips_vlan)
      : QueuePair(config, std::move(send_queue), std::move(recv_queue)),
        receipt_{config.pd, config.qpn.value(), strips_vlan, config.recv_cq},
        sink_(sink) {}

  // Makes a QP that only receives, in any state, and spreads frames over work queues.
  RawQueuePair(const QpConfig& config, ReceiveScaling scaling)
      : QueuePair(config, {}, {}), sink_(nullptr), scaling_(std::move(scaling)) {}

  // Delivers a frame that a flow rule steers to this QP, or drops it.
  void on_frame(const IncomingFrame& frame);

  // Returns how many frames the QP can take now. If it returns 0, waited_for() tells the next thread that
  // posts a receive request that frames wait. A QP that does not receive, or that spreads frames, takes any
  // number (UINT32_MAX) and may drop them.
  uint32_t room_for_frames();

  // Whether frames wait for a receive request. Any thread calls it after posting one. Returns true only once
  // after room_for_frames() has returned 0.
  bool waited_for() {
    return starving_.load(std::memory_order_seq_cst) && starving_.exchange(false, std::memory_order_seq_cst);
  }

  // Limits the sending rate to `rate` kilobits per second (0: unlimited), with bursts of `burst` bytes (0:
  // the default). RESET removes the limit.
  void limit_rate(uint32_t rate, uint32_t burst) {
    limit_.set(rate, burst);
    retry_at_ = kNever;
  }

  Verdict on_packet(const IncomingPacket&, TimePoint) override { return Verdict::kWrongService; }
  // Sends to the QP's own sink: a raw QP has no route.
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

  const FrameReceiptConfig receipt_;
  FrameSink* const sink_;
  const std::optional<ReceiveScaling> scaling_;
  std::atomic<bool> starving_{false};  // frames wait for a receive request
  RateLimit limit_;
  TimePoint retry_at_ = kNever;  // the sink was full, or the rate limit applies: nothing is sent before
};

}  // namespace verbena::transport
