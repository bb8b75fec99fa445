// SPDX-License-Identifier: Apache-2.0
#include "adapter/congestion/packet_trains.h"

#include <algorithm>
#include <new>
#include <utility>

namespace verbena::congestion {
namespace {

constexpr size_t kFirstSize = 64;

}  // namespace

void PacketTrains::add(const PacketTrain& run) {
  if (count_ == ring_.size() && !grow()) {
    if (count_ == 0) return;  // out of memory: nothing is measured
    PacketTrain& last = back();
    last.packets += run.packets;
    last.repeated |= run.repeated;
    return;
  }
  at(count_++) = run;
}

// False: kMax is reached, or out of memory.
bool PacketTrains::grow() {
  if (ring_.size() >= kMax) return false;
  try {
    std::vector<PacketTrain> larger(std::max(ring_.size() * 2, kFirstSize));
    for (size_t i = 0; i < count_; ++i) larger[i] = at(i);
    ring_ = std::move(larger);
    first_ = 0;
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

const PacketTrain* PacketTrains::find(roce::Psn psn) const {
  size_t low = 0;
  size_t high = count_;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    const PacketTrain& run = at(middle);
    if (run.has(psn)) return &run;
    if (psn.is_before(run.first)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return nullptr;
}

void PacketTrains::drop_before(roce::Psn limit) {
  while (count_ > 0 && !at(0).limit().is_after(limit)) {
    first_ = (first_ + 1) & (ring_.size() - 1);
    --count_;
  }
}

void PacketTrains::drop_from(roce::Psn from) {
  while (count_ > 0 && !back().first.is_before(from)) --count_;
  if (count_ > 0 && back().limit().is_after(from))
    back().packets = static_cast<uint32_t>(from - back().first);
}

}  // namespace verbena::congestion
