// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "adapter/congestion/algorithm.h"

namespace verbena::congestion {

// Bounds the bytes a requester may have unacknowledged. It starts with two bursts, where throughput is best
// on one machine (they stay in the cache; measured up to twice as fast as megabytes), halves at a loss and
// grows by one packet per window acknowledged, up to four bursts, or eight.
class FixedWindow {
 public:
  // The most it grows to, in what it starts with. Between hosts whose processors are busy an answer may take
  // a third of a millisecond, whatever the wire takes: with four bursts 10 Gb/s are not filled.
  enum Most : uint32_t { kTwice = 2, kFourTimes = 4 };

  void reset(const Sizes& sizes, Most most = kTwice) {
    packet_bytes_ = sizes.packet;
    run_bytes_ = sizes.run;
    start_ = std::max(2 * sizes.burst, least());
    max_ = most * start_;
    slow_start_until_ = start_;
    credit_ = 0;
    set(start_);
  }

  uint32_t start() const { return start_; }
  uint32_t most() const { return max_; }

  uint32_t bytes() const { return bytes_; }
  // As much of it as is whole runs, once it holds one: a packet left over would cost as much on its way as
  // all the others together.
  uint32_t usable() const { return usable_; }

  void on_acknowledged(uint32_t bytes) {
    if (bytes_ >= max_) return;
    if (bytes_ < slow_start_until_) {
      set(std::min(bytes_ + bytes, slow_start_until_));
      return;
    }
    credit_ += bytes;
    if (credit_ < bytes_) return;
    credit_ -= bytes_;
    set(std::min(bytes_ + packet_bytes_, max_));
  }

  // A gap that the peer reported: some packets got through.
  void on_loss() {
    set(std::max(bytes_ / 2, least()));
    slow_start_until_ = bytes_;
  }

  // Silence: nothing is known to get through. One packet finds out.
  void on_timeout() {
    slow_start_until_ = std::max(bytes_ / 2, least());
    set(packet_bytes_);
  }

 private:
  void set(uint32_t bytes) {
    bytes_ = bytes;
    usable_ = bytes < run_bytes_ ? bytes : bytes - bytes % run_bytes_;
  }
  uint32_t least() const { return 4 * packet_bytes_; }

  uint32_t packet_bytes_ = 0;
  uint32_t run_bytes_ = 0;
  uint32_t start_ = 0;
  uint32_t max_ = 0;
  uint32_t bytes_ = 0;
  uint32_t usable_ = 0;
  uint32_t slow_start_until_ = 0;
  uint32_t credit_ = 0;
};

}  // namespace verbena::congestion
