// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <optional>
#include <vector>

#include "commands/rdma_core/common/output.h"

namespace verbena::rdma_core {

// The steps of a connection, in cmtime's order.
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

// The start and the end of a step. microseconds() returns nullopt for a step that did not finish.
struct Span {
  std::optional<TimePoint> begun;
  std::optional<TimePoint> done;

  void begin() { begun = std::chrono::steady_clock::now(); }
  void end() { done = std::chrono::steady_clock::now(); }
  std::optional<double> microseconds() const;
};

using Spans = std::array<Span, kConnectSteps>;

// The durations of a step in microseconds.
struct StepTimes {
  const char* name;
  double total;     // for all connections together
  double longest;   // of the slowest connection; 0 if no connection completed the step
  double shortest;  // of the fastest connection; 1e9 if no connection completed the step
  double each;      // `total` divided by the number of connections
};

// Computes the durations. `whole` spans all connections. `with_bind` includes the step kBind.
std::vector<StepTimes> evaluate(const Spans& whole, const std::vector<Spans>& connections, bool with_bind);

// Prints the durations as a table and adds them to the JSON object.
void report(const std::vector<StepTimes>& steps, Output& output);

}  // namespace verbena::rdma_core
