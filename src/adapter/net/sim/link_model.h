// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/random.h"
#include "base/time.h"

namespace verbena::net {

// One direction of a link: a transmitter with a queue in front of it and a wire behind it. Chances are in
// parts per million, sizes in bytes of Ethernet frames without their check sequence. What is left as it is
// does not happen.
struct LinkSettings {
  // The transmitter. A rate of 0 is no limit; nothing waits then, and no queue is ever full.
  uint64_t bytes_per_second = 0;
  uint64_t other_bytes_per_second = 0;  // with rate_turn: the rate of every other turn; 0: it stands still
  Duration rate_turn{0};                // how long each of the two rates lasts
  uint32_t overhead_bytes = 24;    // preamble, check sequence and gap of Ethernet: they take time, no room
  uint64_t queue_bytes = 1 << 20;  // what waits or is being sent; an empty queue takes any packet
  uint64_t mark_above_bytes = 0;   // a packet that finds more than so much there is to be marked (ECN)
  uint32_t mtu = 0;                // of IP: larger packets do not go through

  // The wire.
  Duration delay{0};
  Duration jitter{0};        // up to so much besides; keeps the order
  Duration jitter_every{0};  // how long one draw of it lasts; 0: a packet
  uint32_t early = 0;        // comes without the delay, before all that are under way
  uint32_t late = 0;         // comes up to `detour` after its time; others pass it
  Duration detour = std::chrono::microseconds(100);
  uint32_t loss = 0;
  uint32_t duplication = 0;  // comes twice, the second time up to `detour` later
  uint32_t corruption = 0;   // comes with bits that have changed

  // Losses that come together, by packets (Gilbert's model): in its bad state a link loses `bad_loss`.
  uint32_t bad_begins = 0;  // the chance of each packet
  uint32_t bad_ends = 0;
  uint32_t bad_loss = 1'000'000;

  // Losses that come together, by time: for `burst_length` at the end of each `burst_every`.
  Duration burst_every{0};
  Duration burst_length{0};
  uint32_t burst_loss = 0;
};

enum class LinkFate : uint8_t {
  kArrives,
  kLost,        // on the wire, by chance
  kOverflowed,  // no room in the queue
  kTooLarge,    // for the MTU
};

// What becomes of one packet.
struct Passage {
  LinkFate fate = LinkFate::kArrives;
  bool marked = false;     // congestion experienced; has a meaning for packets that are ECN-capable
  bool corrupted = false;  // the caller changes bits, which ones `damage` says
  uint8_t copies = 1;      // how many arrive
  std::array<TimePoint, 2> arrives{};
  uint64_t damage = 0;  // random

  bool arrived() const { return fate == LinkFate::kArrives; }
};

struct LinkCounters {
  uint64_t packets = 0;  // all that were sent, whatever became of them
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

// What a link does to packets, without the packets: asked about each when it is sent, says whether it arrives
// and when. Pure: the same settings, seed, times and sizes give the same answers. What chance does to the
// n-th packet does not even depend on the times, jitter and bursts by time apart: a seed means the same
// losses over a real clock as well.
//
// The emulator of tests/network and simulations share it. Not thread-safe. Allocates only while its queue
// grows.
class LinkModel {
 public:
  // Turns of the rate and bursts are counted from `begin`.
  LinkModel(const LinkSettings& settings, uint64_t seed, TimePoint begin = TimePoint{});

  // A packet is sent. REQUIRES: now is not before that of an earlier call, nor before `begin`
  Passage pass(TimePoint now, size_t bytes);

  // What waits at that time. REQUIRES: as for pass()
  uint64_t queue_bytes(TimePoint now);

  const LinkSettings& settings() const { return settings_; }
  const LinkCounters& counters() const { return counters_; }

 private:
  // A packet in the queue, the one being sent included.
  struct Waiting {
    TimePoint leaves;
    uint64_t bytes;
  };
  // What chance has in store for a packet.
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
  Random random_;         // what befalls each packet: so many draws for each, whatever the time
  Random random_moment_;  // what goes by time
  LinkCounters counters_;

  std::vector<Waiting> queue_ = std::vector<Waiting>(64);  // a ring, its size a power of two
  size_t first_ = 0;
  size_t count_ = 0;
  uint64_t queue_bytes_ = 0;
  TimePoint free_at_;  // when the transmitter has sent all of the queue

  bool bad_ = false;
  TimePoint latest_;  // arrival of those that kept the order
  Duration jitter_now_{0};
  TimePoint jitter_until_;
};

}  // namespace verbena::net
