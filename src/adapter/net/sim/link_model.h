// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/random.h"
#include "base/time.h"

namespace verbena::net {

// The settings of one direction of a link: a transmitter with a queue in front of it and a wire behind it.
// Probabilities are in parts per million, sizes in bytes of Ethernet frames without their check sequence. By
// default a link has no faults.
struct LinkSettings {
  // The transmitter. 0 bytes_per_second: no limit, so no packet waits and the queue is never full. With a
  // `rate_turn`, the two rates alternate, and nothing is sent while the other rate is 0.
  uint64_t bytes_per_second = 0;
  uint64_t other_bytes_per_second = 0;  // the rate of every second turn
  Duration rate_turn{0};                // how long each turn lasts; 0: bytes_per_second always applies
  uint32_t overhead_bytes = 24;    // preamble, check sequence and gap of Ethernet: take time, no queue space
  uint64_t queue_bytes = 1 << 20;  // waiting or being sent; an empty queue takes any packet
  uint64_t mark_above_bytes = 0;   // a packet that finds more than this in the queue is ECN-marked; 0: none
  uint32_t mtu = 0;                // of IP: larger packets are dropped; 0: no limit

  // The wire. Each uint32_t is a probability per packet, in parts per million.
  Duration delay{0};
  Duration jitter{0};        // maximum additional delay; keeps the order
  Duration jitter_every{0};  // how long one random jitter lasts; 0: for one packet
  uint32_t early = 0;        // arrives without the delay, before packets that are on the wire
  uint32_t late = 0;         // arrives up to `detour` late; others pass it
  Duration detour = std::chrono::microseconds(100);
  uint32_t loss = 0;
  uint32_t duplication = 0;  // arrives twice, the second time up to `detour` later
  uint32_t corruption = 0;   // arrives with changed bits

  // Loss bursts by packets (Gilbert's model): in its bad state a link loses `bad_loss` of the packets.
  uint32_t bad_begins = 0;  // probability per packet
  uint32_t bad_ends = 0;
  uint32_t bad_loss = 1'000'000;

  // Loss bursts by time: for `burst_length` at the end of each `burst_every`.
  Duration burst_every{0};
  Duration burst_length{0};
  uint32_t burst_loss = 0;
};

// The fate of a packet: it arrives, or the place and reason of its loss.
enum class LinkFate : uint8_t {
  kArrives,
  kLost,        // on the wire, by chance
  kOverflowed,  // no room in the queue
  kTooLarge,    // for the MTU
};

// The fate of one packet.
struct Passage {
  LinkFate fate = LinkFate::kArrives;
  bool marked = false;     // congestion experienced; matters for ECN-capable packets only
  bool corrupted = false;  // the caller changes bits, selected by `damage`
  uint8_t copies = 1;      // number of arrivals
  std::array<TimePoint, 2> arrives{};
  uint64_t damage = 0;  // random

  bool arrived() const { return fate == LinkFate::kArrives; }
};

struct LinkCounters {
  uint64_t packets = 0;  // all that were sent, whatever their fate
  uint64_t bytes = 0;
  uint64_t lost = 0;
  uint64_t overflowed = 0;
  uint64_t too_large = 0;
  uint64_t marked = 0;
  uint64_t corrupted = 0;
  uint64_t duplicated = 0;
  uint64_t early = 0;
  uint64_t late = 0;
  uint64_t longest_queue_bytes = 0;
};

// Models a link without handling packets: given the time and size of each sent packet, returns whether and
// when it arrives. Pure: the same settings, seed, times and sizes give the same results. The random fate of
// the n-th packet does not depend on the times, except for jitter and bursts by time. So a seed gives the
// same losses over a real clock, too.
//
// Used by simulations and by the emulator of tests/network. Not thread-safe. Allocates only while its queue
// grows.
class LinkModel {
 public:
  // `begin`: the time from which turns of the rate and bursts are counted.
  LinkModel(const LinkSettings& settings, uint64_t seed, TimePoint begin = TimePoint{});

  // Sends a packet. REQUIRES: `now` is not before that of an earlier call, nor before `begin`
  Passage pass(TimePoint now, size_t bytes);

  // The bytes in the queue at that time. REQUIRES: as for pass()
  uint64_t queue_bytes(TimePoint now);

  const LinkSettings& settings() const { return settings_; }
  const LinkCounters& counters() const { return counters_; }

 private:
  // A packet in the queue; the one being sent counts as well.
  struct Waiting {
    TimePoint leaves;
    uint64_t bytes;
  };
  // The random decisions about one packet.
  struct Lot {
    bool lost = false;
    bool early = false;
    bool late = false;
    bool duplicated = false;
    bool corrupted = false;
    uint64_t detour = 0;
    uint64_t copy_detour = 0;
    uint64_t damage = 0;
  };

  bool chance(uint32_t parts_per_million) {
    return parts_per_million != 0 && random_.below(1'000'000) < parts_per_million;
  }
  Lot draw();
  bool lost_in_bad_state();
  bool lost_in_burst(TimePoint now);
  Duration up_to(Duration most, uint64_t draw) const;
  Duration jitter(TimePoint now);
  void enqueue(const Waiting& packet);
  TimePoint transmitted(TimePoint begin, uint64_t bytes) const;
  Passage arrival(TimePoint leaves, const Lot& lot);

  const LinkSettings settings_;
  const TimePoint begin_;
  Random random_;         // fates of packets: each packet's draws are independent of the time
  Random random_moment_;  // jitter and bursts by time
  LinkCounters counters_;

  std::vector<Waiting> queue_ = std::vector<Waiting>(64);  // a ring, its size a power of two
  size_t first_ = 0;
  size_t count_ = 0;
  uint64_t queue_bytes_ = 0;
  TimePoint free_at_;  // when the transmitter will have sent the whole queue

  bool bad_ = false;
  TimePoint latest_;  // latest arrival of packets that kept the order
  Duration jitter_now_{0};
  TimePoint jitter_until_;
};

}  // namespace verbena::net
