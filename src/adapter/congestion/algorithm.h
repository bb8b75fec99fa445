// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.h"

namespace verbena::congestion {

// Tells a sender about the other senders to the same receiver process. An Incast fits one 64-bit word, so
// that std::atomic<Incast> is lock-free.
struct alignas(8) Incast {
  static constexpr uint32_t kMaxSenders = 181;
  static constexpr uint8_t kDips = 8;  // dip numbers are taken modulo this

  uint32_t senders = 1;  // number of senders, as if all sent equal parts
  // Number of the latest dip: a short time in which all senders reduce their traffic together to measure the
  // min RTT. It changes whenever a dip should begin. One sender alone cannot measure the min RTT, because the
  // others keep the queue full.
  uint8_t dip = 0;

  friend bool operator==(const Incast&, const Incast&) = default;
};

// The congestion control algorithm.
enum class Kind : uint8_t {
  kFixed,  // FixedWindow, which halves on loss: for lossless networks
  kBbr,    // BBR: a model of the path that tolerates loss and delay
};

// Sizes that an algorithm needs, in bytes. Each includes the charge of its packets
// (Traits::charge_per_packet). `packet`: one packet of the path MTU. `run`: a packet train that is long
// enough to be sent at once. `burst`: the longest burst that the route allows, which does not depend on the
// path MTU.
struct Sizes {
  uint32_t packet;
  uint32_t run;
  uint32_t burst;
};

// Measurements of the path that one acknowledgement gives.
struct Sample {
  TimePoint now;
  uint64_t arrived = 0;    // bytes newly known to have arrived
  Duration round_trip{0};  // RTT of packets that were sent only once; zero: no sample
  uint64_t rate = 0;       // bytes per second that have been arriving; 0: no sample
  bool limited = false;    // the sender had no more to send: the path may carry more than `rate`
  uint64_t delivered = 0;  // bytes that have arrived in total
  uint64_t sent_at = 0;    // `delivered` when the latest of these packets left: counts rounds
  uint64_t in_flight = 0;  // bytes, now
};

// Limits that the algorithm sets for the sender.
struct Allowance {
  uint64_t window = 0;  // max bytes in flight
  uint64_t rate = 0;    // bytes per second; 0: not paced
};

// Congestion control of one requester, or of one UC or UD flow: decides how much data may be in flight and
// how fast it leaves. Pure: the time is passed in.
//
// Threads: the caller holds the shard's lock.
class Algorithm {
 public:
  virtual ~Algorithm() = default;
  // Call when an acknowledgement has come, which gave this sample.
  virtual void on_arrival(const Sample& sample) = 0;
  // Call when `bytes` bytes are taken for lost, because later packets have arrived and they have not.
  virtual void on_loss(uint64_t bytes) = 0;
  // Call when the retransmission timeout has expired: nothing is known to get through.
  virtual void on_timeout() = 0;
  // Call when a CNP has come: a switch on the path has marked packets.
  virtual void on_mark() = 0;
  // Call when the receiver has reported how many senders it has.
  virtual void on_incast(const Incast& incast) = 0;
  // Returns the present limits. They change only in the calls above.
  virtual Allowance allowance() const = 0;
};

// Window without a model of the path: bounds the bytes that a requester may have unacknowledged. The window
// starts at two bursts. That is the best size on one machine: two bursts stay in the cache (measured up to
// twice as fast as megabytes). The window halves on a loss, and grows by one packet per window acknowledged,
// up to four or eight bursts.
class FixedWindow {
 public:
  // How far the window may grow, as a multiple of its start. Between hosts with busy processors an
  // acknowledgement can take a third of a millisecond, however fast the wire is. Then four bursts do not fill
  // 10 Gb/s.
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

  // The window at the start and the max window, in bytes.
  uint32_t start() const { return start_; }
  uint32_t most() const { return max_; }

  // The window in bytes.
  uint32_t bytes() const { return bytes_; }
  // The window in bytes, rounded down to whole packet trains (Sizes::run) if it holds at least one. A single
  // leftover packet would cost as much as a whole train.
  uint32_t usable() const { return usable_; }

  // Call when `bytes` bytes were acknowledged. Grows the window.
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

  // Call when the peer has reported a gap, so some packets got through. Halves the window, but not below four
  // packets.
  void on_loss() {
    set(std::max(bytes_ / 2, least()));
    slow_start_until_ = bytes_;
  }

  // Call when the retransmission timeout has expired: nothing is known to get through. Shrinks the window to
  // one packet, as a probe.
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

// Algorithm of Kind::kFixed: a FixedWindow of two bursts that grows to four at most, and halves on a loss or
// CNP. It measures nothing of the path.
class FixedAlgorithm final : public Algorithm {
 public:
  explicit FixedAlgorithm(const Sizes& sizes) { window_.reset(sizes); }

  void on_arrival(const Sample& sample) override {
    window_.on_acknowledged(static_cast<uint32_t>(sample.arrived));
  }
  void on_loss(uint64_t) override { window_.on_loss(); }
  void on_timeout() override { window_.on_timeout(); }
  void on_incast(const Incast&) override {}
  void on_mark() override { window_.on_loss(); }
  Allowance allowance() const override { return {.window = window_.usable()}; }

 private:
  FixedWindow window_;
};

}  // namespace verbena::congestion
