// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/time.h"
#include "wire/roce/psn.h"

namespace verbena::congestion {

// Record of a packet train that was sent: consecutive packets that left together. (transport::PacketTrain
// describes one to be sent.)
struct PacketTrain {
  roce::Psn first;
  uint32_t packets = 0;
  bool repeated = false;  // sent before: an acknowledgement may be for an earlier copy
  bool limited = false;   // the sender had no more to send
  TimePoint sent;
  // State when the train left: bytes delivered so far, arrival time of the latest of these bytes, and send
  // time of those.
  uint64_t delivered = 0;
  TimePoint delivered_at;
  TimePoint delivered_sent;

  roce::Psn limit() const { return first + packets; }
  bool has(roce::Psn psn) const { return !psn.is_before(first) && psn.is_before(limit()); }
};

// The packet trains in flight, in PSN order. One record per train and not per packet: a window of many
// megabytes has a few hundred trains. Beyond kMax trains, new ones are merged into the last one.
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

  // Adds a train that was sent. REQUIRES: the train starts where the last one ends, if there is one
  void add(const PacketTrain& run);
  // Returns the train with this PSN; nullptr if no train in flight has it.
  const PacketTrain* find(roce::Psn psn) const;
  // Forgets trains that end at or before `limit`.
  void drop_before(roce::Psn limit);
  // Forgets packets from `from` on: they are sent again.
  void drop_from(roce::Psn from);

 private:
  bool grow();

  std::vector<PacketTrain> ring_;
  size_t first_ = 0;
  size_t count_ = 0;
};

}  // namespace verbena::congestion
