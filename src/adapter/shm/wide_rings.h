// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "adapter/shm/lane_writer.h"
#include "base/time.h"

namespace verbena::engine {

// The state of a lane when WideRings last checked its use.
struct RingUse {
  uint32_t position = 0;
  TimePoint since{};
  bool may_be_wide = true;  // false: the reader is a process of another user (channel_memory.h)
};

// Decides which lanes of a shard use more than the narrow beginning of their payload ring: at most kMax
// lanes, which are filled faster than they are read. Because of this limit, a process's memory hardly grows
// with the number of its peers. A wide lane that has not been used for a while becomes narrow when another
// lane needs its place.
//
// Pure, but for the kernel's memory calls. For the shard's lock holder.
class WideRings {
 public:
  static constexpr size_t kMax = 4;
  // A lane that was full less often carries no stream.
  static constexpr uint32_t kTimesFull = 16;
  // kUnusedAfter: a wide lane counts as unused when nothing was sent through its ring for this long.
  // kLookInterval: after a lane has found no place, no lane looks for unused lanes again for this long.
  static constexpr Duration kUnusedAfter = std::chrono::seconds(1);
  static constexpr Duration kLookInterval = std::chrono::milliseconds(100);

  // Called when `lane`, whose state is `its`, was full: makes the lane wide if there is a place.
  // for_each(visit) calls visit(LaneWriter&, RingUse&) for each lane of the shard.
  //
  // Lanes to other users stay narrow, because a wide lane must become narrow again. That frees pages of a
  // file, and so takes the lock of the file's inode. Any process with a descriptor of the file can hold this
  // lock for as long as it likes: by write(2) from a mapping of a file whose server does not answer. Besides,
  // the readers of such lanes lock only the narrow part in memory.
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

  // Makes a lane use a ring of this width, once the ring is empty. Does nothing if there is no memory for the
  // larger ring.
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
  // Makes a wide lane narrow and gives the rest of its ring's memory back to the kernel. Returns false if the
  // ring cannot be made narrow now (LaneWriter::narrow()).
  static bool give_up(shm::LaneWriter& lane);

  TimePoint next_look_{};
};

}  // namespace verbena::engine
