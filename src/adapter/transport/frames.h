// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include <infiniband/verbs.h>

#include "adapter/memory/key_table.h"
#include "adapter/queues/completion_queue.h"
#include "adapter/queues/work_queue.h"
#include "base/bytes.h"
#include "base/spin_lock.h"
#include "wire/ethernet/flow_key.h"
#include "wire/ethernet/steering.h"

namespace verbena::transport {

// An outgoing Ethernet frame.
struct OutgoingFrame {
  std::span<const ConstBytes>
      pieces;      // user memory, in order; may fault. The list is valid only during the call
  uint32_t bytes;  // their sum
  bool checksums;  // IBV_SEND_IP_CSUM: fill in IP, TCP and UDP checksums
};

enum class FrameStatus : uint8_t {
  kSent,       // sent; may be lost on the way, as any frame
  kBusy,       // no room now: retry the same frame later
  kFault,      // the frame's memory is gone
  kBadLength,  // shorter than an Ethernet header, or longer than the device's MTU allows
};

// Output of a raw QP: a batch of frames that is filled and then sent.
class FrameSink {
 public:
  virtual ~FrameSink() = default;

  // Adds a frame to the batch. Returns false if the batch is full, which an empty batch never is. The memory
  // of the frame's pieces may be read until flush().
  virtual bool add(const OutgoingFrame& frame) = 0;

  // Sends the batch in order, and empties it.
  struct Flushed {
    uint32_t sent;       // number of frames sent
    FrameStatus status;  // why the next one was not sent; kSent: all were
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
  kDropped,  // no request, or one too short: as with UD, a stranger's frame is not our error
  kLost,     // stored, but the completion is lost, as the completion queue is in error
  kFault,    // the request's memory is gone or not writable: completed with an error
};

// Stores a frame in the next receive request of the queue, and completes that request.
FrameReceipt receive_frame(queues::RecvQueue& queue, const FrameReceiptConfig& config,
                           memory::KeyFinder& keys, const IncomingFrame& frame);

// Completes all posted requests with IBV_WC_WR_FLUSH_ERR.
void flush_frame_receives(queues::RecvQueue& queue, const FrameReceiptConfig& config);

// Notified when a work queue enters its error state because of an error (IBV_EVENT_WQ_FATAL).
class WorkQueueListener {
 public:
  virtual ~WorkQueueListener() = default;
  virtual void on_work_queue_fatal() = 0;
};

// A receive queue outside any QP (ibv_create_wq(3)). QPs that spread frames over work queues put frames into
// it.
//
// For the shard's lock holder, except posting (queue(), under lock(), any thread) and state() (any thread).
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

// How a QP spreads frames over work queues (ibv_create_rwq_ind_table(3)): the hash of a frame's headers
// selects an entry of the table.
struct ReceiveScaling {
  std::vector<ReceiveWorkQueue*> table;  // 2^n entries
  std::array<uint8_t, ethernet::kHashKeyBytes> key{};
  uint8_t fields = 0;  // ethernet::HashField

  ReceiveWorkQueue& choose(const ethernet::FlowKey& frame) const {
    return *table[ethernet::receive_hash(key, fields, frame) & (table.size() - 1)];
  }
};

}  // namespace verbena::transport
