// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/time.h"
#include "wire/roce/psn.h"

namespace verbena::congestion {

// Packets that followed each other and left together.
struct PacketTrain {
  roce::Psn first;
  uint32_t packets = 0;
  bool repeated = false;  // they had been sent before: an answer may be to the earlier ones
  bool limited = false;   // there was no more to send
  TimePoint sent;
  // When it left: how many bytes had arrived, when the latest of them had, and when those were sent.
  uint64_t delivered = 0;
  TimePoint delivered_at;
  TimePoint delivered_sent;

  roce::Psn limit() const { return first + packets; }
  bool has(roce::Psn psn) const { return !psn.is_before(first) && psn.is_before(limit()); }
};

// The runs that are in flight, in PSN order. A record for each run and not for each packet: a window of many
// megabytes has a few hundred. With more runs than it may have they grow coarser: later ones are one.
//
// Allocates only while it grows.
class PacketTrains {
 public:
  static constexpr size_t kMax = 4096;

  bool empty() const { return count_ == 0; }
  size_t size() const { return count_; }
  PacketTrain& back() { return at(count_ - 1); }
  const PacketTrain& at(size_t place) const { return ring_[(first_ + place) & (ring_.size() - 1)]; }
  PacketTrain& at(size_t place) { return ring_[(first_ + place) & (ring_.size() - 1)]; }

  // REQUIRES: the run begins where the last one ends, if there is one
  void add(const PacketTrain& run);
  // The run of this PSN; nullptr if it is not in flight.
  const PacketTrain* find(roce::Psn psn) const;
  // Forgets the runs that lie wholly before `limit`.
  void drop_before(roce::Psn limit);
  // Forgets all from `from` on: it is sent again.
  void drop_from(roce::Psn from);

 private:
  bool grow();

  std::vector<PacketTrain> ring_;
  size_t first_ = 0;
  size_t count_ = 0;
};

}  // namespace verbena::congestion
