// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "net/sim/link_model.h"
#include "transport/simulation/host.h"

namespace verbena::transport {

struct BulkOptions {
  uint64_t seed = 1;
  net::LinkSettings link;  // both ways
  uint32_t qp_pairs = 1;
  ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE;  // or RDMA_READ, SEND
  uint32_t message = 64 * 1024;
  uint32_t depth = 128;  // requests of each QP that are posted at a time
  uint32_t mtu = 1024;
  uint8_t traffic_class = 0;
  congestion::Kind congestion = congestion::Kind::kProbing;
  Duration tick = std::chrono::microseconds(5);
};

// Programs that move messages one behind the other as fast as they can, as ib_write_bw does, from one host to
// another over a link. What they move is not looked at: that is for World.
class Bulk {
 public:
  explicit Bulk(const BulkOptions& options);

  // Lets time pass. False: a request failed.
  bool run(Duration time);

  // What has been completed since the last call of it, by QP, in bytes a second of the time that passed.
  std::vector<double> goodput();
  // The bytes a second that the link could carry of messages.
  double ideal() const;

  net::SimulatedNetwork& network() { return network_; }
  Host& host(size_t index) { return *hosts_[index]; }
  const net::LinkCounters& link(size_t host) { return hosts_[host]->port().link_counters(); }

 private:
  void add_pair();
  bool feed(size_t index);

  const BulkOptions options_;
  net::SimulatedNetwork network_;
  std::vector<std::unique_ptr<Host>> hosts_;
  Buffer* source_ = nullptr;
  Buffer* target_ = nullptr;
  std::vector<uint64_t> completed_;  // messages, by QP
  std::vector<uint64_t> counted_;
  std::vector<uint64_t> posted_;
  TimePoint counted_at_;
};

}  // namespace verbena::transport
