// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "adapter/net/sim/frame.h"
#include "base/time.h"

namespace verbena::net {

// The frames on their way to one port, ordered by arrival time. If frames arrive at the same time, the one
// added first comes first. Most frames arrive in the order of sending and go to a ring; the others go to a
// heap. Allocates memory only while it grows.
class PendingFrames {
 public:
  // Adds a frame that arrives at the time `at`, not before frames that add_in_order() added earlier.
  // REQUIRES: at >= latest()
  void add_in_order(TimePoint at, Frame* frame) {
    if (count_ == ring_.size()) grow();
    ring_[(first_ + count_++) & (ring_.size() - 1)] = {at, sequence_++, frame};
    latest_ = at;
  }
  void add(TimePoint at, Frame* frame) {
    heap_.push_back({at, sequence_++, frame});
    std::push_heap(heap_.begin(), heap_.end(), Later{});
  }

  TimePoint latest() const { return latest_; }
  TimePoint next() const {
    const TimePoint in_order = count_ > 0 ? ring_[first_].at : kNever;
    return heap_.empty() ? in_order : std::min(in_order, heap_.front().at);
  }

  // Removes and returns the first frame if it has arrived by `now`, else returns nullptr.
  Frame* take(TimePoint now) {
    const bool from_heap = !heap_.empty() && (count_ == 0 || Later{}(ring_[first_], heap_.front()));
    if (from_heap) {
      if (heap_.front().at > now) return nullptr;
      std::pop_heap(heap_.begin(), heap_.end(), Later{});
      Frame* frame = heap_.back().frame;
      heap_.pop_back();
      return frame;
    }
    if (count_ == 0 || ring_[first_].at > now) return nullptr;
    Frame* frame = ring_[first_].frame;
    first_ = (first_ + 1) & (ring_.size() - 1);
    --count_;
    return frame;
  }

 private:
  struct Arrival {
    TimePoint at;
    uint64_t sequence;
    Frame* frame;
  };
  struct Later {
    bool operator()(const Arrival& a, const Arrival& b) const {
      return a.at != b.at ? a.at > b.at : a.sequence > b.sequence;
    }
  };

  void grow() {
    std::vector<Arrival> larger(ring_.size() * 2);
    for (size_t i = 0; i < count_; ++i) larger[i] = ring_[(first_ + i) & (ring_.size() - 1)];
    ring_ = std::move(larger);
    first_ = 0;
  }

  std::vector<Arrival> ring_ = std::vector<Arrival>(64);
  size_t first_ = 0;
  size_t count_ = 0;
  TimePoint latest_{};
  std::vector<Arrival> heap_;
  uint64_t sequence_ = 0;
};

}  // namespace verbena::net
