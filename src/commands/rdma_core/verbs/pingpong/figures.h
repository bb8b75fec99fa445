// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "commands/rdma_core/common/output.h"
#include "commands/rdma_core/verbs/pingpong/settings.h"

namespace verbena::rdma_core {

// Cycles of the device's clock between one received message and the next, over all of them.
class ReceiveClock {
 public:
  // `mask`: the bits that the clock has.
  explicit ReceiveClock(uint64_t mask) : mask_(mask) {}

  void received(uint64_t timestamp);

  uint64_t count() const { return count_; }
  uint64_t most() const { return max_; }
  uint64_t least() const { return least_; }
  double average() const { return static_cast<double>(total_) / static_cast<double>(count_); }

 private:
  uint64_t mask_;
  std::optional<uint64_t> previous_;
  uint64_t count_ = 0;
  uint64_t max_ = 0;
  uint64_t least_ = UINT64_MAX;
  uint64_t total_ = 0;
};

// What every pingpong begins its object with: which program, which end, with what settings.
void describe(const PingpongProgram& program, const Settings& settings, ibv_device* device, Output& output);

// The two lines at the end of a pingpong, and with `clock` its three.
void report(const Settings& settings, std::chrono::duration<double> took, const ReceiveClock* clock,
            Output& output);

}  // namespace verbena::rdma_core
