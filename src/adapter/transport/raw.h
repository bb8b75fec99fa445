// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <infiniband/verbs.h>

#include "adapter/memory/key_table.h"
#include "adapter/queues/completion_queue.h"
#include "adapter/queues/work_queue.h"
#include "adapter/transport/queue_pair.h"
#include "base/bytes.h"
#include "base/spin_lock.h"
#include "base/time.h"
#include "wire/ethernet/steering.h"

namespace verbena::transport {

// An outgoing Ethernet frame.
struct OutgoingFrame {
  std::span<const ConstBytes>
      pieces;      // user memory, in order; reading it may fault. The list is valid only during the call
  uint32_t bytes;  // total length of the pieces
  bool checksums;  // IBV_SEND_IP_CSUM: fill in IP, TCP and UDP checksums
};

enum class FrameStatus : uint8_t {
  kSent,       // sent; may be lost on the way, as any frame
  kBusy,       // no room now: retry the same frame later
  kFault,      // the frame's memory cannot be read
  kBadLength,  // shorter than an Ethernet header, or longer than the device's MTU allows
};

// Output of a raw QP: a batch of frames that is filled and then sent.
class FrameSink {
 public:
  virtual ~FrameSink() = default;

  // Adds a frame to the batch. Returns false if the batch is full; an empty batch always takes a frame. The
  // sink may read the memory of the frame's pieces until flush().
  virtual bool add(const OutgoingFrame& frame) = 0;

  // Sends the batch in order, and empties it.
  struct Flushed {
    uint32_t sent;       // number of frames sent
    FrameStatus status;  // why the next frame was not sent; kSent: all were sent
  };
  virtual Flushed flush() = 0;
};

// A raw Ethernet frame that flow steering delivers to a QP. Its memory is valid only during the call.
struct IncomingFrame {
  ConstBytes bytes;
  const ethernet::FrameHeaders& headers;
  uint32_t flow_tag;    // of the matching rule (IBV_FLOW_SPEC_ACTION_TAG); 0: none
  bool checksums_good;  // IBV_WC_IP_CSUM_OK
};

// How a receive queue for frames completes its requests.
struct FrameReceiptConfig {
  memory::PdId pd = 0;
  uint32_t number = 0;       // of the QP or WQ, for its completions
  bool strips_vlan = false;  // move the outermost VLAN tag to the completion
  queues::CompletionQueue* cq = nullptr;
};

enum class FrameReceipt : uint8_t {
  kStored,
  kDropped,  // no receive request is posted, or the next one is too short: as with UD, not an error of ours
  kLost,     // the completion is lost, as the completion queue is in error; the frame may be stored
  kFault,    // the request's memory is gone or not writable: completed with an error
};

// Stores a frame in the next receive request of the queue, and completes the request. A dropped frame leaves
// the request in the queue.
FrameReceipt receive_frame(queues::RecvQueue& queue, const FrameReceiptConfig& config,
                           memory::KeyFinder& keys, const IncomingFrame& frame);

// Completes all receive requests in the queue with IBV_WC_WR_FLUSH_ERR.
void flush_frame_receives(queues::RecvQueue& queue, const FrameReceiptConfig& config);

// Notified when a work queue enters its error state because of an error (IBV_EVENT_WQ_FATAL).
class WorkQueueListener {
 public:
  virtual ~WorkQueueListener() = default;
  virtual void on_work_queue_fatal() = 0;
};

// A receive queue outside any QP (ibv_create_wq(3)). QPs that spread frames over work queues (ReceiveScaling)
// put frames into it.
//
// Threads: the caller holds the shard's lock, with two exceptions. Any thread may post (to queue(), under
// lock()) and read state().
class ReceiveWorkQueue {
 public:
  ReceiveWorkQueue(const FrameReceiptConfig& config, const memory::KeyTable& keys, queues::RecvQueue queue,
                   WorkQueueListener* listener)
      : config_(config), keys_(&keys), queue_(std::move(queue)), listener_(listener) {}

  queues::RecvQueue& queue() { return queue_; }
  SpinLock& lock() { return lock_; }
  ibv_wq_state state() const { return state_.load(std::memory_order_acquire); }
  uint32_t number() const { return config_.number; }
  void strip_vlan(bool on) { config_.strips_vlan = on; }

  // Enters a state. RESET drops all requests without completions; ERR flushes them.
  void enter(ibv_wq_state next);
  // Completes the requests that were posted in ERR with IBV_WC_WR_FLUSH_ERR.
  void flush();

  // Stores an Ethernet frame in the next receive request. Returns false if the frame is dropped: the queue is
  // not in RDY, or the request is missing or too short. Enters ERR if the request's memory cannot be written,
  // or if the completion queue is in error.
  bool on_frame(const IncomingFrame& frame);

 private:
  FrameReceiptConfig config_;
  memory::KeyFinder keys_;
  queues::RecvQueue queue_;
  WorkQueueListener* const listener_;
  SpinLock lock_;
  std::atomic<ibv_wq_state> state_{IBV_WQS_RESET};
};

// Spreads a QP's frames over work queues (ibv_create_rwq_ind_table(3)). The hash of a frame's headers selects
// an entry of the table.
struct ReceiveScaling {
  std::vector<ReceiveWorkQueue*> table;  // 2^n entries
  std::array<uint8_t, ethernet::kHashKeyBytes> key{};
  uint8_t fields = 0;  // header fields that are hashed: bits of ethernet::HashField

  ReceiveWorkQueue& choose(const ethernet::FlowKey& frame) const {
    return *table[ethernet::receive_hash(key, fields, frame) & (table.size() - 1)];
  }
};

// Packet pacing (ibv_modify_qp_rate_limit(3)): decides when the next frame may be sent. Each frame delays the
// next one by the time that its bytes take at the rate. A QP that was idle may send one burst without delay.
class RateLimit {
 public:
  // Default burst, as the time that the burst takes at the rate. A busy machine may keep a sender from
  // running for about this long, and with the burst the sender catches up. A default burst has at least
  // kLeastBurstBytes bytes.
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
  // Returns when may_send() becomes true, if it is false now.
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
// completes once the frame has left. Each receive request takes one frame that a flow rule steers to this QP.
// The QP takes no RoCEv2 packets: on_packet() refuses them.
class RawQueuePair : public QueuePair {
 public:
  RawQueuePair(const QpConfig& config, queues::SendQueue send_queue, queues::RecvQueue recv_queue,
               FrameSink* sink, bool strips_vlan)
      : QueuePair(config, std::move(send_queue), std::move(recv_queue)),
        receipt_{config.pd, config.qpn.value(), strips_vlan, config.recv_cq},
        sink_(sink) {}

  // Makes a QP that cannot send, and spreads received frames over work queues. It does so in every state of
  // the QP.
  RawQueuePair(const QpConfig& config, ReceiveScaling scaling)
      : QueuePair(config, {}, {}), sink_(nullptr), scaling_(std::move(scaling)) {}

  // Delivers a frame that a flow rule steers to this QP, or drops it.
  void on_frame(const IncomingFrame& frame);

  // Returns how many frames the QP can take now. Once it has returned 0, frames count as waiting, and
  // waited_for() returns true to the next thread that posts a receive request. A QP that does not receive, or
  // that spreads frames, takes any number (UINT32_MAX) and may drop them.
  uint32_t room_for_frames();

  // Whether frames wait for a receive request. Any thread calls this after posting a receive request. Returns
  // true only once after room_for_frames() has returned 0.
  bool waited_for() {
    return starving_.load(std::memory_order_seq_cst) && starving_.exchange(false, std::memory_order_seq_cst);
  }

  // Limits the sending rate to `rate` kilobits per second (0: unlimited), with bursts of `burst` bytes (0:
  // RateLimit's default). RESET removes the limit.
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
  void on_timer(TimePoint now) override {
    if (retry_at_ <= now) retry_at_ = kNever;
  }
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
