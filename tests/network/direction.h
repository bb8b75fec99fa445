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

// What a direction does besides what its link's model says.
struct DirectionOptions {
  // Segments of one frame that arrive within such a time are handed over together, when the last of them is
  // there, as an adapter does that moderates its interrupts and merges what it got.
  Duration join = std::chrono::microseconds(40);
  // A packet larger than the MTU is answered as by a router; otherwise it is just gone.
  bool answer_too_large = true;
};

// Carries frames from one device to another as the link's model says. Run by one thread, which alone touches
// it.
class Direction {
 public:
  Direction(const Tap& from, const Tap& to, const net::LinkSettings& settings, uint64_t seed,
            const DirectionOptions& options);

  // Until `stop` is readable. False: a device is gone.
  bool run(int stop);

  const net::LinkCounters& counters() const { return model_.counters(); }
  // What has arrived, but the host did not take.
  uint64_t refused() const { return refused_; }

 private:
  using FramePointer = std::shared_ptr<const SuperFrame>;
  // Segments of a frame under way, together.
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

  // How many frames it took; negative: the device is gone.
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
  std::unique_ptr<std::byte[]> room_;  // for the next frame
  std::priority_queue<UnderWay, std::vector<UnderWay>, Later> under_way_;
  uint64_t sequence_ = 0;
  uint64_t refused_ = 0;
};

}  // namespace verbena::network
