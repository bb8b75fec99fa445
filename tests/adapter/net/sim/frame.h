// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "wire/roce/icrc.h"
#include "wire/roce/packet.h"
#include "wire/roce/path.h"

namespace verbena::net {

// A packet on the simulated wire: its UDP payload, and the path and flow that its headers would carry.
struct Frame {
  static constexpr uint32_t kMaxBytes = roce::kMaxHeaderBytes + roce::kMaxPathMtu + 3 + roce::kIcrcBytes;

  ConstBytes udp_payload() const { return {bytes.data(), length}; }

  roce::Path path;
  roce::IcrcFlow flow;
  uint32_t length = 0;
  std::array<std::byte, kMaxBytes> bytes;
};

// A pool of frames, which grows as needed. get() returns the frame that was put back last, because it is
// still in the CPU cache.
class FramePool {
 public:
  Frame* get() {
    if (free_.empty()) grow();
    Frame* frame = free_.back();
    free_.pop_back();
    return frame;
  }
  void put(Frame* frame) { free_.push_back(frame); }

 private:
  static constexpr size_t kStep = 64;

  void grow() {
    auto& block = blocks_.emplace_back(std::make_unique_for_overwrite<Frame[]>(kStep));
    free_.reserve(blocks_.size() * kStep);
    for (size_t i = 0; i < kStep; ++i) free_.push_back(&block[i]);
  }

  std::vector<std::unique_ptr<Frame[]>> blocks_;
  std::vector<Frame*> free_;
};

}  // namespace verbena::net
