// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <vector>

#include <infiniband/verbs.h>

#include "adapter/transport/frame_receipt.h"
#include "base/spin_lock.h"
#include "wire/ethernet/steering.h"

namespace verbena::transport {

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
