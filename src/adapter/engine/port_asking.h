// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verbena::engine {

// Decides how often a polling thread polls its shard's ports. That costs a system call, while polling shared
// memory costs almost nothing. While packets come by memory, ports that have brought none for a while are
// polled only now and then. Pure: counts polls, not time.
class PortAsking {
 public:
  // Called in each poll. Returns whether to poll the ports, too.
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

  uint32_t memory_is_used_ = 0;  // for this many more polls
  uint32_t ports_are_used_ = 0;
  uint32_t polls_ = 0;
};

}  // namespace verbena::engine
