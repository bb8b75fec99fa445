// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verbena::engine {

// How often a thread that polls asks its shard's ports, which costs a system call, while packets come by
// memory, which costs next to nothing to ask: ports that have brought nothing for a while only now and then.
// Pure; counts in polls.
class PortAsking {
 public:
  // Whether to ask the ports in this poll.
  bool asks() {
    if (memory_is_used_ == 0) return true;
    --memory_is_used_;
    if (ports_are_used_ > 0) {
      --ports_are_used_;
      return true;
    }
    return ++polls_ % kPollsPerAsking == 0;
  }
  bool memory_is_used() const { return memory_is_used_ > 0; }
  void memory_brought(uint32_t packets) {
    if (packets > 0) memory_is_used_ = kRemembered;
  }
  void ports_brought(uint32_t packets) {
    if (packets > 0) ports_are_used_ = kRemembered;
  }

 private:
  static constexpr uint32_t kRemembered = 4096;
  static constexpr uint32_t kPollsPerAsking = 256;

  uint32_t memory_is_used_ = 0;  // for so many more polls
  uint32_t ports_are_used_ = 0;
  uint32_t polls_ = 0;
};

}  // namespace verbena::engine
