// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "adapter/net/sim/link_model.h"
#include "adapter/transport/simulation/host.h"
#include "adapter/transport/simulation/tcp_flow.h"

namespace verbena::transport {

inline constexpr uint64_t kGigabit = 125'000'000;  // bytes per second

inline net::LinkSettings link_of(uint64_t rate, uint64_t queue,
                                 Duration delay = std::chrono::microseconds(50)) {
  net::LinkSettings settings;
  settings.bytes_per_second = rate;
  settings.queue_bytes = queue;
  settings.delay = delay;
  return settings;
}

// Jain's fairness index: 1 if all shares are equal, 1/n if one has everything.
double fairness_of(const std::vector<double>& shares);

struct BulkOptions {
  uint64_t seed = 1;
  net::LinkSettings link;                      // to the receiver, shared by all senders, and back
  uint32_t senders = 1;                        // hosts
  uint32_t qp_pairs = 1;                       // per sender
  roce::Service service = roce::Service::kRc;  // or kUc, kUd
  ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE;    // or RDMA_READ, SEND
  uint32_t message = 64 * 1024;                // bytes; for UD at most the MTU
  uint32_t depth = 128;                        // outstanding requests per QP
  uint32_t mtu = 1024;
  uint8_t traffic_class = 0;
  congestion::Kind congestion = congestion::Kind::kBbr;
  bool echo = false;  // adds a QP pair of the first sender that exchanges 64-byte messages
  // Adds a TCP flow with BBR to the same receiver, which starts this much earlier.
  std::optional<Duration> tcp_since;
  Duration tick = std::chrono::microseconds(5);
};

// Simulates programs that send messages continuously at full rate over a link, as ib_write_bw does. Data is
// not verified; World does that.
class Bulk {
 public:
  explicit Bulk(const BulkOptions& options);

  // Advances time. False: a request failed.
  bool run(Duration time);

  // Returns the goodput of each QP since the last call, in bytes per second. It counts completed requests;
  // for UC and UD, all bytes that arrived, even of incomplete messages.
  std::vector<double> goodput();
  // The link's capacity for message data, in bytes per second.
  double ideal() const;
  // Returns the round-trip times of the echoes since the last call.
  std::vector<Duration> echoes() { return std::exchange(echoes_, {}); }

  net::SimulatedNetwork& network() { return network_; }
  Host& sender(size_t index = 0) { return *senders_[index]; }
  Host& receiver() { return *receiver_; }
  // REQUIRES: tcp_since is set.
  const TcpFlow& tcp() const { return *tcp_; }
  // The counters of the link to the receiver.
  const net::LinkCounters& link() { return senders_[0]->port().link_counters(); }

 private:
  struct Pair {
    SimulatedQp* from;
    SimulatedQp* to;
    Buffer* source;
    roce::Path path;      // for UD
    uint64_t posted = 0;  // in messages
    uint64_t completed = 0;
    uint64_t counted = 0;  // in bytes
  };

  Pair connect(Host& from, Buffer& source);
  uint64_t posted() const;  // in messages
  uint64_t moved(const Pair& pair) const;
  bool feed(Pair& pair);
  bool bounce(TimePoint now);
  bool throw_to(SimulatedQp& from, Buffer& what);

  const BulkOptions options_;
  net::SimulatedNetwork network_;
  std::vector<std::unique_ptr<Host>> senders_;
  std::unique_ptr<Host> receiver_;
  Buffer* target_ = nullptr;
  std::vector<Pair> pairs_;
  std::optional<Pair> echo_;
  std::unique_ptr<TcpFlow> tcp_;
  TimePoint begins_;
  TimePoint thrown_at_ = kNever;
  std::vector<Duration> echoes_;
  TimePoint counted_at_;
};

}  // namespace verbena::transport
