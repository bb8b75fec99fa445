// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "commands/rdma_core/common/output.h"
#include "commands/rdma_core/verbs/pingpong/settings.h"

namespace verbena::rdma_core {

// Statistics of the time between successive received messages, in cycles of the device's clock.
class ReceiveClock {
 public:
  // `mask` has the valid bits of the clock (ibv_device_attr_ex::completion_timestamp_mask).
  explicit ReceiveClock(uint64_t mask) : mask_(mask) {}

  // Adds a received message. The first message only begins the first interval.
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

// Fills in the first members of the JSON object: program, role and settings.
void describe(const PingpongProgram& program, const Settings& settings, ibv_device* device, Output& output);

// Adds the results of all clients to the JSON object: messages in both directions, iterations of each client.
struct Figures {
  unsigned long long bytes;
  double seconds;
  double megabits;  // per second
  double microseconds_each;
};
Figures add_figures(const Settings& settings, std::chrono::duration<double> took, Output& output);

// Prints two lines of results, and three more if `clock` is not null. Adds the results to the JSON object.
void report(const Settings& settings, std::chrono::duration<double> took, const ReceiveClock* clock,
            Output& output);

// Runs a pingpong and returns the exit status. The two ends exchange their queue pairs' addresses over TCP;
// then each queue pair sends a message for each one received.
int run_pingpong(const PingpongProgram& program, int argc, char** argv);

// Plays over XRC between a server and `Settings::clients` clients. Returns false after reporting an error.
// The server sends to each client's shared receive queue through the queue pairs of all clients in turn.
bool play_over_xrc(const PingpongProgram& program, const Settings& settings, ibv_device* device,
                   Output& output);

}  // namespace verbena::rdma_core
