// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace verbena::transport {

// Bounds the bytes a requester may have unacknowledged. It starts where throughput is best on one machine
// (two super-packets in flight stay in cache; measured up to twice as fast as megabytes), halves at a loss
// and grows by one packet per window acknowledged.
class CongestionWindow {
 public:
  static constexpr uint32_t kStart = 136 * 1024;
  static constexpr uint32_t kMost = 272 * 1024;

  // `run_bytes`: of the packets that one super-packet takes.
  void reset(uint32_t packet_bytes, uint32_t run_bytes) {
    packet_bytes_ = packet_bytes;
    run_bytes_ = run_bytes;
    slow_start_until_ = kStart;
    credit_ = 0;
    set(kStart);
  }

  uint32_t bytes() const { return bytes_; }
  // As much of it as is whole super-packets, once it holds one: a packet left over would cost as much on its
  // way as all the others together.
  uint32_t usable() const { return usable_; }

  void on_acknowledged(uint32_t bytes) {
    if (bytes_ >= kMost) return;
    if (bytes_ < slow_start_until_) {
      set(std::min(bytes_ + bytes, slow_start_until_));
      return;
    }
    credit_ += bytes;
    if (credit_ < bytes_) return;
    credit_ -= bytes_;
    set(std::min(bytes_ + packet_bytes_, kMost));
  }

  // A gap that the peer reported: some packets got through.
  void on_loss() {
    set(std::max(bytes_ / 2, least()));
    slow_start_until_ = bytes_;
  }

  // Silence: nothing is known to get through.
  void on_timeout() {
    slow_start_until_ = std::max(bytes_ / 2, least());
    set(least());
  }

 private:
  void set(uint32_t bytes) {
    bytes_ = bytes;
    usable_ = bytes < run_bytes_ ? bytes : bytes - bytes % run_bytes_;
  }
  uint32_t least() const { return 4 * packet_bytes_; }

  uint32_t packet_bytes_ = 0;
  uint32_t run_bytes_ = 0;
  uint32_t bytes_ = kStart;
  uint32_t usable_ = kStart;
  uint32_t slow_start_until_ = kStart;
  uint32_t credit_ = 0;
};

}  // namespace verbena::transport
