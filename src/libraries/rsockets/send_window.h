// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "libraries/rsockets/buffer_address.h"

namespace verbena::rsockets {

// Below so much room in the send ring nobody begins a transfer: it would only make small packets.
inline constexpr uint32_t kSendLowWater = 2048;

// What may be sent now. A message needs a free place in the send queue, room in the ring of bytes, a credit
// of the peer's, and a buffer that the peer has granted. Two threads use a window: the *sender* (one at a
// time) takes, the *poller* (the one that reads completions, one at a time) gives back and grants. Each
// number has one writer.
class SendWindow {
 public:
  // REQUIRES: requests > 0
  SendWindow(uint32_t requests, uint32_t ring_bytes) : requests_(requests), ring_bytes_(ring_bytes) {}

  // Sender and anyone who only wants to know.
  bool may_send() const {
    return has_room() && sent_.load(std::memory_order_relaxed) != limit_.load(std::memory_order_acquire) &&
           has_buffer_.load(std::memory_order_acquire) != 0;
  }
  // For writes that go past the peer's buffers and credits: those into mapped memory.
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

  // Sender: up to `wanted` bytes of the buffer at hand, using up one credit and one place; `ring_bytes` of
  // the ring are taken with take_ring(). The length returned is that of the message. REQUIRES: may_send(),
  // wanted > 0
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
  // Sender: a message without a buffer, such as news of a mapped buffer.
  // REQUIRES: has_credit()
  void take_credit() {
    sent_.store(static_cast<uint16_t>(sent_.load(std::memory_order_relaxed) + 1), std::memory_order_relaxed);
  }
  // Sender: a request is about to be posted that uses so many bytes of the ring.
  // REQUIRES: has_room(), bytes <= free_ring_bytes()
  void post(uint32_t bytes) {
    bytes_posted_.store(bytes_posted_.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
    requests_posted_.store(requests_posted_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

  // Poller: a request has completed that used so many bytes.
  void complete(uint32_t bytes) {
    bytes_done_.store(bytes_done_.load(std::memory_order_relaxed) + bytes, std::memory_order_release);
    requests_done_.store(requests_done_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  // Poller: the peer takes messages up to this one.
  void set_limit(uint16_t limit) { limit_.store(limit, std::memory_order_release); }
  // Poller: the peer has granted a buffer. False when it grants more than it can have.
  // REQUIRES: buffer.length > 0
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

  // The sender's. Sums that wrap around; differences count.
  std::atomic<uint16_t> sent_{0};
  std::atomic<uint32_t> requests_posted_{0};
  std::atomic<uint32_t> bytes_posted_{0};
  std::atomic<uint32_t> grants_taken_{0};
  BufferAddress current_;

  // The poller's.
  std::atomic<uint16_t> limit_{0};
  std::atomic<uint32_t> requests_done_{0};
  std::atomic<uint32_t> bytes_done_{0};
  std::atomic<uint32_t> grants_made_{0};
  std::array<BufferAddress, 2> grants_;

  std::atomic<uint32_t> has_buffer_{0};  // buffers with room, both threads'
};

}  // namespace verbena::rsockets
