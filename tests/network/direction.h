// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <queue>
#include <vector>

#include "adapter/net/sim/link_model.h"
#include "base/time.h"
#include "network/super_frame.h"
#include "network/tap.h"

namespace verbena::network {

// Options of a direction besides the link model.
struct DirectionOptions {
  // Segments of one frame that arrive within this time are delivered together, when the last of them arrives.
  // An adapter that moderates interrupts and merges segments (GRO) does the same.
  Duration join = std::chrono::microseconds(40);
  // Answer a packet larger than the MTU as a router does, instead of dropping it silently.
  bool answer_too_large = true;
};

// Carries frames from one device to another through a link model. Single-threaded.
class Direction {
 public:
  Direction(const Tap& from, const Tap& to, const net::LinkSettings& settings, uint64_t seed,
            const DirectionOptions& options);

  // Carries frames until `stop` is readable. False: a device is gone.
  bool run(int stop);

  const net::LinkCounters& counters() const { return model_.counters(); }
  // The number of frames that arrived but that the host refused.
  uint64_t refused() const { return refused_; }

 private:
  using FramePointer = std::shared_ptr<const SuperFrame>;
  // Consecutive segments of a frame in transit.
  struct UnderWay {
    TimePoint at;
    uint64_t sequence = 0;
    FramePointer frame;
    uint32_t first = 0;
    uint32_t count = 0;
    bool marked = false;
    bool corrupted = false;
    uint64_t damage = 0;
  };
  struct Later {
    bool operator()(const UnderWay& a, const UnderWay& b) const {
      return a.at != b.at ? a.at > b.at : a.sequence > b.sequence;
    }
  };

  // Reads frames and returns their number; negative if the device is gone.
  int take_frames();
  FramePointer frame_of(const Offload& offload, uint32_t bytes);
  void admit(const FramePointer& frame, TimePoint now);
  void send_off(UnderWay&& piece);
  void deliver(TimePoint now);
  void write(const UnderWay& piece);
  void answer_too_large(const SuperFrame& frame);

  const Tap& from_;
  const Tap& to_;
  const DirectionOptions options_;
  net::LinkModel model_;
  std::unique_ptr<std::byte[]> room_;  // buffer for the next frame
  std::priority_queue<UnderWay, std::vector<UnderWay>, Later> under_way_;
  uint64_t sequence_ = 0;
  uint64_t refused_ = 0;
};

}  // namespace verbena::network
