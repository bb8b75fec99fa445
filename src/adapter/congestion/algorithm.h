// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "adapter/congestion/incast.h"
#include "base/time.h"

namespace verbena::congestion {

// All in bytes that packets cost in flight: one packet of the path MTU, as many of those as leave best
// together (a run), and the most that may leave together whatever the MTU.
struct Sizes {
  uint32_t packet;
  uint32_t run;
  uint32_t burst;
};

// What one acknowledgement tells of the path.
struct Sample {
  TimePoint now;
  uint64_t arrived = 0;    // bytes that are known to have arrived from now on
  Duration round_trip{0};  // of packets that were sent once; zero: it tells of none
  uint64_t rate = 0;       // bytes a second that have been arriving; 0: it does not tell
  bool limited = false;    // there was no more to send: the path may carry more than the rate
  uint64_t delivered = 0;  // bytes that have arrived in all
  uint64_t sent_at = 0;    // as many had when the latest of these was sent: so round trips are counted
  uint64_t in_flight = 0;  // now
};

// What may be sent.
struct Allowance {
  uint64_t window = 0;  // bytes in flight
  uint64_t rate = 0;    // bytes a second; 0: as fast as may be
};

// Decides how much of one requester's data may be in flight, and how fast it leaves. Pure: time is passed in.
//
// For the shard's lock holder, as the requester itself.
class Algorithm {
 public:
  virtual ~Algorithm() = default;
  virtual void on_arrival(const Sample& sample) = 0;
  // Packets are missing that others have overtaken.
  virtual void on_loss(uint64_t bytes) = 0;
  // Silence: nothing is known to get through.
  virtual void on_timeout() = 0;
  // A switch on the way has marked packets (a CNP came).
  virtual void on_mark() = 0;
  // The receiver tells of other senders.
  virtual void on_incast(const Incast& incast) = 0;
  virtual Allowance allowance() const = 0;
};

}  // namespace verbena::congestion
