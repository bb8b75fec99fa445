// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "adapter/congestion/incast.h"
#include "base/time.h"

namespace verbena::congestion {

// The congestion control algorithm.
enum class Kind : uint8_t {
  kFixed,  // FixedWindow, which halves on loss: for lossless networks
  kBbr,    // BBR: a model of the path that tolerates loss and delay
};

// Sizes that an algorithm needs, in bytes as charged in flight (with Traits::charge_per_packet). `packet` is
// one packet of the path MTU, `run` a train of packets worth sending at once, `burst` the largest burst
// whatever the MTU.
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
// For the shard's lock holder.
class Algorithm {
 public:
  virtual ~Algorithm() = default;
  // An acknowledgement has come, which gives this sample.
  virtual void on_arrival(const Sample& sample) = 0;
  // `bytes` bytes are lost: later packets arrived before them.
  virtual void on_loss(uint64_t bytes) = 0;
  // The retransmission timeout has expired: nothing is known to get through.
  virtual void on_timeout() = 0;
  // A CNP came: a switch on the path has marked packets.
  virtual void on_mark() = 0;
  // The receiver reports how many senders it has.
  virtual void on_incast(const Incast& incast) = 0;
  virtual Allowance allowance() const = 0;
};

}  // namespace verbena::congestion
