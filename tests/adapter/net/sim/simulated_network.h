// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "adapter/net/sim/frame.h"
#include "adapter/net/sim/simulated_port.h"
#include "base/random.h"
#include "base/time.h"
#include "wire/roce/path.h"

namespace verbena::net {

// The faults and delays of a network. Each of the first five members is a probability per packet, in parts
// per million. At most one of the first four faults happens to a packet.
struct Conditions {
  uint32_t loss = 0;
  uint32_t duplication = 0;  // a copy arrives up to `detour` later
  uint32_t reordering = 0;   // arrives up to `detour` later than in order
  uint32_t corruption = 0;
  uint32_t busy = 0;  // send() returns kBusy
  Duration delay = std::chrono::microseconds(5);
  Duration jitter{0};  // maximum additional delay; does not reorder
  Duration detour = std::chrono::microseconds(100);
  uint64_t bytes_per_second = 0;   // sending rate of each port; 0: no limit
  uint32_t queue_bytes = 1 << 20;  // with a rate limit: packets are lost while more than this waits to leave
};

struct NetworkCounters {
  uint64_t sent = 0;
  uint64_t lost = 0;        // by chance
  uint64_t overflowed = 0;  // by a full queue, or larger than a link's MTU
  uint64_t cut_off = 0;     // to or from an isolated port, or to an unknown address
  uint64_t duplicated = 0;
  uint64_t reordered = 0;
  uint64_t corrupted = 0;
};

// A simulated network with its own clock and random numbers: the same seed and calls give the same packets,
// arrivals and faults. For tests.
//
// Packets are real: they are encoded with their ICRC when sent, and checked and parsed when received. So
// corruption is detected as on a wire. Corruption makes only changes that the ICRC is certain to detect. With
// IPv4, where the receiver does not know the identification, these are up to three adjacent bits; with IPv6,
// up to 20 bits anywhere, or truncation.
//
// Not thread-safe.
class SimulatedNetwork {
 public:
  explicit SimulatedNetwork(uint64_t seed) : random_(seed) {}
  SimulatedNetwork(const SimulatedNetwork&) = delete;
  SimulatedNetwork& operator=(const SimulatedNetwork&) = delete;

  // Adds a port, which lives as long as the network. REQUIRES: no other port of the network has this address
  SimulatedPort& add_port(const roce::Address& address);

  // Makes packets to the multicast group arrive at this port, too, including those that the port itself
  // sends. Each copy of a packet has its own faults and delay.
  void join(SimulatedPort& port, const roce::Address& group) { memberships_.push_back({&port, group}); }
  void leave(SimulatedPort& port, const roce::Address& group);

  Conditions& conditions() { return conditions_; }
  const NetworkCounters& counters() const { return counters_; }

  TimePoint now() const { return now_; }
  // Returns the time when the next packet arrives at any port, or kNever if none is on its way.
  TimePoint next_arrival() const;
  // Sets the network's clock. REQUIRES: to >= now()
  void advance_to(TimePoint to) { now_ = to; }

 private:
  friend class SimulatedPort;

  SimulatedPort* port_at(const roce::Address& address) const;
  bool chance(uint32_t parts_per_million) {
    return parts_per_million != 0 && random_.below(1'000'000) < parts_per_million;
  }
  Duration up_to(Duration most) {
    return most.count() == 0 ? most : Duration(random_.below(static_cast<uint64_t>(most.count()) + 1));
  }
  struct Membership {
    SimulatedPort* port;
    roce::Address group;
    friend bool operator==(const Membership&, const Membership&) = default;
  };

  void dispatch(SimulatedPort& from, Frame* frame);
  void dispatch_to_group(SimulatedPort& from, Frame* frame);
  void carry(SimulatedPort& from, SimulatedPort* to, Frame* frame);
  void carry_by_link(SimulatedPort& from, SimulatedPort& to, Frame* frame);
  Frame* copy_of(const Frame& frame);
  void lose(Frame* frame, uint64_t& counter);
  void corrupt(Frame& frame);
  void duplicate(SimulatedPort& to, const Frame& frame, TimePoint at);

  Random random_;
  Conditions conditions_;
  NetworkCounters counters_;
  TimePoint now_{std::chrono::seconds(1)};
  FramePool frames_;
  std::vector<std::unique_ptr<SimulatedPort>> ports_;
  std::vector<Membership> memberships_;
};

}  // namespace verbena::net
