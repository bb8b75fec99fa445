// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "libraries/rsockets/buffer_address.h"

namespace verbena::rsockets {

// The minimum free space in the send ring, in bytes, to start a transfer. Less space would lead to small
// packets.
inline constexpr uint32_t kSendLowWater = 2048;

// Flow control of the sending direction: decides whether a message may be sent now. A message needs a free
// entry in the send queue, kSendLowWater free bytes in the send ring, a credit of the peer, and a buffer
// granted by the peer. Two threads may use a window at the same time: the *sender*, which takes these
// resources, and the *poller*, which handles completions and returns the resources. There is at most one
// thread at a time in each role. Each counter but has_buffer_ has one writer.
class SendWindow {
 public:
  // REQUIRES: requests > 0
  SendWindow(uint32_t requests, uint32_t ring_bytes) : requests_(requests), ring_bytes_(ring_bytes) {}

  // Whether a message may be sent. Exact for the sender, a hint for other threads.
  bool may_send() const {
    return has_room() && sent_.load(std::memory_order_relaxed) != limit_.load(std::memory_order_acquire) &&
           has_buffer_.load(std::memory_order_acquire) != 0;
  }
  // Whether a WRITE into mapped memory may be posted: the send queue has a free entry, and the send ring has
  // kSendLowWater free bytes. A WRITE needs no buffer and no credit of the peer.
  bool has_room() const {
    return requests_posted_.load(std::memory_order_relaxed) - requests_done_.load(std::memory_order_acquire) <
               requests_ &&
           free_ring_bytes() >= std::min(kSendLowWater, ring_bytes_);
  }
  bool has_credit() const {
    return sent_.load(std::memory_order_relaxed) != limit_.load(std::memory_order_acquire);
  }
  uint32_t free_ring_bytes() const {
    return ring_bytes_ -
           (bytes_posted_.load(std::memory_order_relaxed) - bytes_done_.load(std::memory_order_acquire));
  }
  bool all_done() const {
    return requests_posted_.load(std::memory_order_acquire) == requests_done_.load(std::memory_order_acquire);
  }

  // Sender: takes up to `wanted` bytes of the peer's current buffer, and one credit. Returns where the
  // message's bytes go, with the message's length. The caller then calls post(). REQUIRES: may_send(), wanted
  // > 0
  BufferAddress take(uint32_t wanted) {
    if (current_.length == 0) {
      const uint32_t at = grants_taken_.load(std::memory_order_relaxed);
      current_ = grants_[at % grants_.size()];
      grants_taken_.store(at + 1, std::memory_order_release);
    }
    const BufferAddress part{current_.address, current_.key, std::min(wanted, current_.length)};
    current_.address += part.length;
    current_.length -= part.length;
    if (current_.length == 0) has_buffer_.fetch_sub(1, std::memory_order_acq_rel);
    sent_.store(static_cast<uint16_t>(sent_.load(std::memory_order_relaxed) + 1), std::memory_order_relaxed);
    return part;
  }
  // Sender: takes a credit for a message without a buffer, such as the announcement of a mapped buffer.
  // REQUIRES: has_credit()
  void take_credit() {
    sent_.store(static_cast<uint16_t>(sent_.load(std::memory_order_relaxed) + 1), std::memory_order_relaxed);
  }
  // Sender: accounts for a request about to be posted that uses `bytes` bytes of the send ring.
  // REQUIRES: has_room(), bytes <= free_ring_bytes()
  void post(uint32_t bytes) {
    bytes_posted_.store(bytes_posted_.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
    requests_posted_.store(requests_posted_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

  // Poller: releases what a completed request used: its queue entry and `bytes` bytes of the send ring.
  void complete(uint32_t bytes) {
    bytes_done_.store(bytes_done_.load(std::memory_order_relaxed) + bytes, std::memory_order_release);
    requests_done_.store(requests_done_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  // Poller: sets the sequence number of the first message that the peer does not accept yet.
  void set_limit(uint16_t limit) { limit_.store(limit, std::memory_order_release); }
  // Poller: adds a buffer that the peer has granted. Returns false if the peer has granted more than two at a
  // time, which the protocol forbids. REQUIRES: buffer.length > 0
  bool grant(const BufferAddress& buffer) {
    const uint32_t at = grants_made_.load(std::memory_order_relaxed);
    if (at - grants_taken_.load(std::memory_order_acquire) == grants_.size()) return false;
    grants_[at % grants_.size()] = buffer;
    grants_made_.store(at + 1, std::memory_order_release);
    has_buffer_.fetch_add(1, std::memory_order_acq_rel);
    return true;
  }

 private:
  const uint32_t requests_;
  const uint32_t ring_bytes_;

  // Written by the sender only. Counters that wrap around; only their differences count.
  std::atomic<uint16_t> sent_{0};
  std::atomic<uint32_t> requests_posted_{0};
  std::atomic<uint32_t> bytes_posted_{0};
  std::atomic<uint32_t> grants_taken_{0};
  BufferAddress current_;

  // Written by the poller only.
  std::atomic<uint16_t> limit_{0};
  std::atomic<uint32_t> requests_done_{0};
  std::atomic<uint32_t> bytes_done_{0};
  std::atomic<uint32_t> grants_made_{0};
  std::array<BufferAddress, 2> grants_;

  std::atomic<uint32_t> has_buffer_{0};  // granted buffers with room left; written by both threads
};

}  // namespace verbena::rsockets
