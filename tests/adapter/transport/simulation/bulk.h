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

inline constexpr uint64_t kGigabit = 125'000'000;  // bytes a second

inline net::LinkSettings link_of(uint64_t rate, uint64_t queue,
                                 Duration delay = std::chrono::microseconds(50)) {
  net::LinkSettings settings;
  settings.bytes_per_second = rate;
  settings.queue_bytes = queue;
  settings.delay = delay;
  return settings;
}

// Jain's fairness index: 1 where all are alike, 1/n where one has it all.
double fairness_of(const std::vector<double>& shares);

struct BulkOptions {
  uint64_t seed = 1;
  net::LinkSettings link;                      // to the receiver, all senders', and back
  uint32_t senders = 1;                        // hosts
  uint32_t qp_pairs = 1;                       // of each
  roce::Service service = roce::Service::kRc;  // or kUc, kUd
  ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE;    // or RDMA_READ, SEND
  uint32_t message = 64 * 1024;                // of datagrams the MTU at most
  uint32_t depth = 128;                        // requests of each QP that are posted at a time
  uint32_t mtu = 1024;
  uint8_t traffic_class = 0;
  congestion::Kind congestion = congestion::Kind::kBbr;
  bool echo = false;  // besides, the first sender has a QP pair on which 64 bytes go there and back
  // Besides, there is a TCP flow with BBR to the same receiver, and has been there so long already.
  std::optional<Duration> tcp_since;
  Duration tick = std::chrono::microseconds(5);
};

// Programs that move messages one behind the other as fast as they can, as ib_write_bw does, from some hosts
// to another over a link. What they move is not looked at: that is for World.
class Bulk {
 public:
  explicit Bulk(const BulkOptions& options);

  // Lets time pass. False: a request failed.
  bool run(Duration time);

  // What has been completed since the last call of it, by QP, in bytes a second of the time that passed; of
  // an unreliable service what has arrived, of whole messages or not.
  std::vector<double> goodput();
  // The bytes a second that the link could carry of messages.
  double ideal() const;
  // How long each echo took since the last call of it.
  std::vector<Duration> echoes() { return std::exchange(echoes_, {}); }

  net::SimulatedNetwork& network() { return network_; }
  Host& sender(size_t index = 0) { return *senders_[index]; }
  Host& receiver() { return *receiver_; }
  // REQUIRES: there is one
  const TcpFlow& tcp() const { return *tcp_; }
  // To the receiver.
  const net::LinkCounters& link() { return senders_[0]->port().link_counters(); }

 private:
  struct Pair {
    SimulatedQp* from;
    SimulatedQp* to;
    Buffer* source;
    roce::Path path;      // of datagrams
    uint64_t posted = 0;  // messages
    uint64_t completed = 0;
    uint64_t counted = 0;  // bytes
  };

  Pair connect(Host& from, Buffer& source);
  uint64_t posted() const;  // messages
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
