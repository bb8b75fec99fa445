// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "adapter/transport/simulation/flow.h"
#include "adapter/transport/simulation/host.h"

namespace verbena::transport {

// The parameters of a run, drawn from a seed or set by a test.
struct WorldOptions {
  uint64_t seed = 1;
  net::Conditions conditions;
  std::optional<net::LinkSettings> link;  // in both directions; replaces `conditions`
  bool ipv6 = false;
  uint32_t qp_pairs = 1;
  bool both_ways = true;
  FlowOptions flow;  // for every flow; only the first one has the fault
  Host::QpSizes sizes;
  QpAttributes attributes;  // for every QP, except PSNs and addresses
  bool start_near_wrap = true;
  Duration tick = std::chrono::microseconds(2);  // minimum interval between rounds of a host
  Duration time_limit = std::chrono::seconds(600);
  Duration isolate_at = Duration::max();  // time at which the second host falls silent forever

  static WorldOptions draw(uint64_t seed, uint32_t packets);
};

// Two hosts on a simulated network, with flows between them.
class World {
 public:
  explicit World(const WorldOptions& options);

  // Runs until all flows are finished. False: a check failed; complaint() describes it.
  bool run();
  const std::string& complaint() const { return complaint_; }

  net::SimulatedNetwork& network() { return network_; }
  Host& host(size_t index) { return *hosts_[index]; }
  const std::vector<std::unique_ptr<Flow>>& flows() const { return flows_; }
  uint64_t packets() const { return network_.counters().sent; }
  Duration elapsed() const { return network_.now() - started_; }

 private:
  void connect(SimulatedQp& a, SimulatedQp& b);
  void add_flow(size_t from, SimulatedQp& a, size_t to, SimulatedQp& b, uint32_t index);
  bool all_finished() const;
  bool check();
  void check_end();

  const WorldOptions options_;
  Random random_;
  net::SimulatedNetwork network_;
  TimePoint started_;
  std::vector<std::unique_ptr<Host>> hosts_;
  Buffer* shared_counters_[2];
  std::vector<std::unique_ptr<Flow>> flows_;
  std::string complaint_;
};

}  // namespace verbena::transport
