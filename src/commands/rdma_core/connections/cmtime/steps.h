// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <optional>
#include <vector>

#include "commands/rdma_core/common/output.h"

namespace verbena::rdma_core {

// What a connection goes through, in cmtime's order.
enum class ConnectStep {
  kCreateId,
  kBind,
  kResolveAddress,
  kResolveRoute,
  kCreateQueuePair,
  kConnect,
  kDisconnect,
  kDestroy,
};
constexpr size_t kConnectSteps = 8;

using TimePoint = std::chrono::steady_clock::time_point;

// When something began, and when it was done. What was not done has no length.
struct Span {
  std::optional<TimePoint> begun;
  std::optional<TimePoint> done;

  void begin() { begun = std::chrono::steady_clock::now(); }
  void end() { done = std::chrono::steady_clock::now(); }
  std::optional<double> microseconds() const;
};

using Spans = std::array<Span, kConnectSteps>;

// How long a step took: for all connections together, and for the fastest and the slowest of them.
struct StepTimes {
  const char* name;
  double total;  // microseconds, as all of them
  double longest;
  double shortest;
  double each;  // of the total
};

std::vector<StepTimes> evaluate(const Spans& whole, const std::vector<Spans>& connections, bool with_bind);

// The table, and the same in the object.
void report(const std::vector<StepTimes>& steps, Output& output);

}  // namespace verbena::rdma_core
