// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "commands/rdma_core/common/output.h"
#include "commands/rdma_core/verbs/pingpong/settings.h"

namespace verbena::rdma_core {

// Statistics of device clock cycles between successive received messages.
class ReceiveClock {
 public:
  // `mask`: the valid bits of the clock.
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

// Fills in the object's first members: program, role and settings.
void describe(const PingpongProgram& program, const Settings& settings, ibv_device* device, Output& output);

// Prints the two lines of results, and with `clock` three more.
void report(const Settings& settings, std::chrono::duration<double> took, const ReceiveClock* clock,
            Output& output);

}  // namespace verbena::rdma_core
