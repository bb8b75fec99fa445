// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

namespace verbena::rsockets {

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

  // Contiguous bytes in the ring, ready to be read.
  struct Piece {
    uint32_t offset;
    uint32_t length;
  };

  uint32_t ring_bytes() const { return 2 * half_; }
  uint64_t available() const {
    return arrived_bytes_.load(std::memory_order_acquire) - read_bytes_.load(std::memory_order_relaxed);
  }

  // Reader: returns the place of at most `wanted` contiguous unread bytes, after skipping the first `skip`
  // unread bytes. The length is 0 if there are none.
  Piece peek(uint64_t wanted, uint64_t skip = 0) const {
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
  // Poller: returns the new credit limit to announce to the peer, the sequence number of the first message
  // that the peer may not send.
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
