// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "commands/rdma_core/common/output.h"
#include "commands/rdma_core/connections/handles.h"

namespace verbena::rdma_core {

// The options of cmtime. `milliseconds` is the timeout for resolving an address or a route. `retries` is how
// often that is repeated, and the retry count of the QPs.
struct TimingLine {
  std::string destination;
  std::string source;
  std::string port = "7471";
  int connections = 100;
  int retries = 2;
  int milliseconds = 2000;
  bool json = false;
};

// Returns the attributes with which both ends create queue pairs: RC, with one work request per queue.
ibv_qp_init_attr timed_queue_pair();

// Finds the addresses of one end: of the server if `passive`, else of the client. Returns 0, or the exit
// status after reporting the error. `what` names the failed function in the message.
int find_timed_addresses(const TimingLine& line, bool passive, const char* what, const Output& output,
                         AddressInfo& found);

// Run one end and return the exit status. The server runs until it is killed and returns only on failure.
int run_timed_server(const TimingLine& line, rdma_event_channel* channel);
int run_timed_client(const TimingLine& line, rdma_event_channel* channel);

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

// The microseconds of a step: for all connections together, and of the slowest and the fastest connection.
struct StepTimes {
  const char* name;
  double total;  // for all connections together
  double longest;
  double shortest;
  double each;  // `total` divided by the number of connections
};

// Computes the durations. `whole` spans all connections. `with_bind` includes the step kBind.
std::vector<StepTimes> evaluate(const Spans& whole, const std::vector<Spans>& connections, bool with_bind);

// Prints the durations as a table and adds them to the JSON object.
void report(const std::vector<StepTimes>& steps, Output& output);

}  // namespace verbena::rdma_core
