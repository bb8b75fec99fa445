// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/random.h"
#include "base/time.h"

namespace verbena::net {

// The settings of one direction of a link: a queue, then a transmitter, then a wire. Probabilities are in
// parts per million. Sizes are in bytes of Ethernet frames without their check sequence, unless stated
// otherwise. By default a link has no faults.
struct LinkSettings {
  // The transmitter. If bytes_per_second is 0, there is no limit, so no packet waits and the queue is never
  // full. With a `rate_turn`, bytes_per_second and other_bytes_per_second alternate; nothing is sent while
  // the other rate is 0.
  uint64_t bytes_per_second = 0;
  uint64_t other_bytes_per_second = 0;  // the rate of every second turn
  Duration rate_turn{0};                // duration of each rate; 0: bytes_per_second always applies
  uint32_t overhead_bytes = 24;  // Ethernet's preamble, check sequence and gap: take time but no queue space
  uint64_t queue_bytes = 1 << 20;  // waiting or being sent; an empty queue takes any packet
  uint64_t mark_above_bytes = 0;   // a packet that finds more than this in the queue is ECN-marked; 0: none
  uint32_t mtu = 0;                // of IP, in bytes; larger packets are dropped; 0: no limit

  // The wire. Each uint32_t is a probability per packet, in parts per million.
  Duration delay{0};
  Duration jitter{0};        // maximum additional delay; keeps the order
  Duration jitter_every{0};  // how long one random jitter value applies; 0: to one packet
  uint32_t early = 0;        // skips `delay` and overtakes packets that are on the wire
  uint32_t late = 0;         // arrives up to `detour` late, overtaken by later packets
  Duration detour = std::chrono::microseconds(100);
  uint32_t loss = 0;
  uint32_t duplication = 0;  // arrives twice, the second time up to `detour` later
  uint32_t corruption = 0;   // arrives with changed bits

  // Loss bursts by packets (Gilbert's model): in its bad state, a link loses each packet with probability
  // `bad_loss`.
  uint32_t bad_begins = 0;  // probability per packet that the bad state begins
  uint32_t bad_ends = 0;    // probability per packet that the bad state ends
  uint32_t bad_loss = 1'000'000;

  // Loss bursts by time: in the last `burst_length` of each period `burst_every`, a packet is lost with
  // probability `burst_loss`.
  Duration burst_every{0};
  Duration burst_length{0};
  uint32_t burst_loss = 0;
};

// The fate of a packet: it arrives, or it is lost for one of these reasons.
enum class LinkFate : uint8_t {
  kArrives,
  kLost,        // on the wire, by chance
  kOverflowed,  // no room in the queue
  kTooLarge,    // larger than the MTU
};

// The result of LinkModel::pass() for one packet.
struct Passage {
  LinkFate fate = LinkFate::kArrives;
  bool marked = false;     // if the packet is ECN-capable, the caller sets "congestion experienced"
  bool corrupted = false;  // the caller changes bits, selected by `damage`
  uint8_t copies = 1;      // number of arrivals
  std::array<TimePoint, 2> arrives{};
  uint64_t damage = 0;  // random number, by which the caller chooses the bits

  bool arrived() const { return fate == LinkFate::kArrives; }
};

struct LinkCounters {
  uint64_t packets = 0;  // all sent packets, whatever their fate
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

// Computes whether and when packets arrive over a link, from the time and size of each sent packet; it
// handles no packet data. Pure: the same settings, seed, times and sizes give the same results. The random
// decisions about the n-th packet do not depend on the times, except for jitter and bursts by time. So a seed
// gives the same random losses over a real clock, too.
//
// Used by simulations and by the emulator of tests/network. Not thread-safe. Allocates only while its queue
// grows.
class LinkModel {
 public:
  // Rate turns and loss bursts are counted from the time `begin`.
  LinkModel(const LinkSettings& settings, uint64_t seed, TimePoint begin = TimePoint{});

  // Sends a packet of `bytes` at the time `now` and returns its fate. REQUIRES: `now` does not decrease from
  // call to call, and is at or after `begin`
  Passage pass(TimePoint now, size_t bytes);

  // Returns the number of bytes in the queue at the time `now`. REQUIRES: `now` does not decrease from call
  // to call, and is at or after `begin`
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
  TimePoint latest_;  // latest arrival among packets that kept the order
  Duration jitter_now_{0};
  TimePoint jitter_until_;
};

}  // namespace verbena::net
