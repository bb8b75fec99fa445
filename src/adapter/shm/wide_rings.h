// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "adapter/shm/lane_writer.h"
#include "base/time.h"

namespace verbena::engine {

// How a lane that may be wide was found last.
struct RingUse {
  uint32_t position = 0;
  TimePoint since{};
  bool may_be_wide = true;  // false: the reader is a process of another user (channel_memory.h)
};

// Says which lanes of a shard use more than the beginning of their payload ring: a few, of those that are
// filled faster than they are read. So what a process costs hardly grows with those it is connected to. One
// that has not been used for a while gives its place to another that would use it.
//
// Reads no clock. For the shard's lock holder.
class WideRings {
 public:
  static constexpr size_t kMax = 4;
  // A lane that was full more rarely carries no stream.
  static constexpr uint32_t kTimesFull = 16;
  // How long an unused one stays wide if others want to be, and how often they look.
  static constexpr Duration kUnusedAfter = std::chrono::seconds(1);
  static constexpr Duration kLookInterval = std::chrono::milliseconds(100);

  // The lane, whose use is `its`, was full. for_each(visit) calls visit(LaneWriter&, RingUse&) for each lane
  // of the shard.
  //
  // Lanes to other users stay narrow. Their readers lock them in memory, and to free pages of a file takes
  // the lock of its inode. Any process with a descriptor of the file can hold that for as long as it likes:
  // by write(2) from a mapping of a file whose server does not answer.
  template <class ForEach>
  void was_full(shm::LaneWriter& lane, const RingUse& its, TimePoint now, ForEach for_each) {
    if (!its.may_be_wide || lane.is_wide() || lane.times_full() < kTimesFull || now < next_look_) return;
    size_t wide = 0;
    for_each([&](shm::LaneWriter& other, RingUse& use) {
      if (other.is_wide() && !(is_unused(other, use, now) && give_up(other))) ++wide;
    });
    if (wide < kMax) {
      use_ring(lane, shm::RingWidth::kWide);
    } else {
      next_look_ = now + kLookInterval;
    }
  }

  // Lets a lane use so much of its ring, as soon as there is memory for it.
  static void use_ring(shm::LaneWriter& lane, shm::RingWidth width);

 private:
  static bool is_unused(const shm::LaneWriter& lane, RingUse& use, TimePoint now) {
    if (use.since == TimePoint{} || use.position != lane.payload_position()) {
      use.position = lane.payload_position();
      use.since = now;
      return false;
    }
    return now - use.since >= kUnusedAfter;
  }
  // The kernel gets back what the lane does not use any more. False: it cannot do without just now.
  static bool give_up(shm::LaneWriter& lane);

  TimePoint next_look_{};
};

}  // namespace verbena::engine
