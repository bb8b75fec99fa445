// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <vector>

#include "libraries/rsockets/stream_protocol.h"

namespace verbena::rsockets {

// The minimum free space in the send ring, in bytes, to start a transfer. Less space would lead to small
// packets.
inline constexpr uint32_t kSendLowWater = 2048;

// Flow control of the sending direction: decides whether a message may be sent now. A message needs a free
// entry in the send queue, kSendLowWater free bytes in the send ring, a credit of the peer, and a buffer
// granted by the peer. Two threads may use a window at the same time: the *sender*, which takes these
// resources, and the *poller*, which handles completions and returns the resources. There is at most one
// thread at a time in each role. Each counter is written by only one of the two, except has_buffer_.
class SendWindow {
 public:
  // REQUIRES: requests > 0
  SendWindow(uint32_t requests, uint32_t ring_bytes) : requests_(requests), ring_bytes_(ring_bytes) {}

  // Returns whether a message may be sent. Exact for the sender, a hint for other threads.
  bool may_send() const {
    return has_room() && has_credit() && has_buffer_.load(std::memory_order_acquire) != 0;
  }
  // Returns whether a WRITE into mapped memory may be posted: the send queue has a free entry, and the send
  // ring has kSendLowWater free bytes. A WRITE needs no buffer and no credit of the peer.
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

  // Sender: takes up to `wanted` bytes of the peer's current buffer and one credit, for one message. Returns
  // the remote address to which the message is written, and the number of bytes taken. The caller then calls
  // post(). REQUIRES: may_send(), wanted > 0
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
    take_credit();
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

// Contiguous bytes in a ring.
struct RingPiece {
  uint32_t offset;
  uint32_t length;
};

// Allocates space for outgoing data in the ring of send buffers, in order. Does not check that the space is
// free: SendWindow tracks the free bytes. For the sending thread only.
class SendRing {
 public:
  explicit SendRing(uint32_t bytes) : bytes_(bytes) {}

  // Takes the next `length` bytes of the ring. The second piece is empty unless they wrap around. REQUIRES: 0
  // < length <= the ring's size
  std::array<RingPiece, 2> take(uint32_t length) {
    const uint32_t first = std::min(length, bytes_ - at_);
    const std::array<RingPiece, 2> pieces{{{at_, first}, {0, length - first}}};
    at_ = (at_ + length) % bytes_;
    return pieces;
  }

 private:
  const uint32_t bytes_;
  uint32_t at_ = 0;
};

// Flow control of the receiving direction: counts the bytes that arrived, and decides when to grant buffers
// and credits to the peer. The receive buffer is a ring of two halves. Each grant gives the peer one half,
// which the peer fills from beginning to end. The same half is granted again after the application has read
// all its bytes. Two threads may use a window at the same time: the *reader*, which takes data out, and the
// *poller*, which handles completions. There is at most one thread at a time in each role. Each counter has
// one writer.
class ReceiveWindow {
 public:
  // `messages`: the maximum number of unread messages, which limits the peer's credits. REQUIRES: messages >
  // 0, half_bytes > 0
  ReceiveWindow(uint32_t messages, uint32_t half_bytes)
      : half_(half_bytes), ends_(messages), announce_at_(static_cast<uint16_t>(messages / 2)) {}

  uint32_t ring_bytes() const { return 2 * half_; }
  uint64_t available() const {
    return arrived_bytes_.load(std::memory_order_acquire) - read_bytes_.load(std::memory_order_relaxed);
  }

  // Reader: returns where in the ring at most `wanted` contiguous unread bytes lie, after the first `skip`
  // unread bytes. The length is 0 if there are none.
  RingPiece peek(uint64_t wanted, uint64_t skip = 0) const {
    const uint64_t at_hand = available();
    if (skip >= at_hand) return {0, 0};
    const auto offset =
        static_cast<uint32_t>((read_bytes_.load(std::memory_order_relaxed) + skip) % ring_bytes());
    const uint64_t in_a_row = std::min<uint64_t>(at_hand - skip, ring_bytes() - offset);
    return {offset, static_cast<uint32_t>(std::min(wanted, in_a_row))};
  }
  // Reader: releases the first `bytes` unread bytes, so that their space and credits can be granted again.
  // REQUIRES: bytes <= available()
  void consume(uint64_t bytes) {
    const uint64_t read = read_bytes_.load(std::memory_order_relaxed) + bytes;
    uint32_t messages = messages_read_.load(std::memory_order_relaxed);
    const uint32_t arrived = messages_arrived_.load(std::memory_order_acquire);
    while (messages != arrived && ends_[messages % ends_.size()] <= read) ++messages;
    messages_read_.store(messages, std::memory_order_release);
    read_bytes_.store(read, std::memory_order_release);
  }

  // Poller: accounts for a message that announces `bytes` written bytes. Returns false if the peer had no
  // credit or no granted buffer for the message, or `bytes` is 0. The peer then violates the protocol, and
  // the caller must end the connection.
  bool arrive(uint32_t bytes) {
    const uint32_t count = messages_arrived_.load(std::memory_order_relaxed);
    if (count - messages_read_.load(std::memory_order_acquire) == ends_.size()) return false;
    const uint64_t end = arrived_bytes_.load(std::memory_order_relaxed) + bytes;
    if (bytes == 0 || end > granted_bytes_.load(std::memory_order_relaxed)) return false;
    ends_[count % ends_.size()] = end;
    messages_arrived_.store(count + 1, std::memory_order_release);
    arrived_bytes_.store(end, std::memory_order_release);
    return true;
  }

  // owes_buffer() tells whether a half of the ring is free and not granted. owes_credits() tells whether half
  // of the maximum number of messages were read since the last announcement of credits. Both are exact for
  // the poller, and hints for other threads.
  bool owes_buffer() const {
    return granted_bytes_.load(std::memory_order_relaxed) + half_ <=
           read_bytes_.load(std::memory_order_acquire) + ring_bytes();
  }
  bool owes_credits() const {
    return static_cast<int16_t>(sequence() - announce_at_.load(std::memory_order_relaxed)) >= 0;
  }
  // Poller: grants the next half and returns its offset in the ring. REQUIRES: owes_buffer()
  uint32_t grant_buffer() {
    const uint64_t granted = granted_bytes_.load(std::memory_order_relaxed);
    granted_bytes_.store(granted + half_, std::memory_order_relaxed);
    return static_cast<uint32_t>(granted % ring_bytes());
  }
  // Poller: returns the new credit limit, for the caller to announce to the peer. The limit is the sequence
  // number of the first message that the peer may not send yet.
  uint16_t grant_credits() {
    const uint16_t read = sequence();
    announce_at_.store(static_cast<uint16_t>(read + ends_.size() / 2), std::memory_order_relaxed);
    return static_cast<uint16_t>(read + ends_.size());
  }

 private:
  uint16_t sequence() const { return static_cast<uint16_t>(messages_read_.load(std::memory_order_acquire)); }

  const uint32_t half_;
  std::vector<uint64_t> ends_;  // for each unread message: all bytes received up to the message's end

  // Written by the reader only.
  std::atomic<uint64_t> read_bytes_{0};
  std::atomic<uint32_t> messages_read_{0};

  // Written by the poller only.
  std::atomic<uint64_t> arrived_bytes_{0};
  std::atomic<uint32_t> messages_arrived_{0};
  std::atomic<uint64_t> granted_bytes_{half_};  // the connection data grant the first half
  std::atomic<uint16_t> announce_at_;
};

}  // namespace verbena::rsockets
