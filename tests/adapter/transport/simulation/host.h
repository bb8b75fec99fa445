// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "adapter/net/sim/simulated_network.h"
#include "adapter/queues/completion_queue.h"
#include "adapter/transport/rc.h"
#include "adapter/transport/support/memory.h"
#include "adapter/transport/support/post.h"
#include "adapter/transport/support/test_routes.h"
#include "base/random.h"

namespace verbena::transport {

// A QP with its completion queues, and a record of its events.
struct SimulatedQp : QpEventListener, queues::CompletionListener {
  void on_qp_event(ibv_event_type event) override { events.push_back(event); }
  void on_completion_event() override {}
  void on_overflow() override { overflowed = true; }

  QpCounters counters{};
  std::unique_ptr<queues::CompletionQueue> send_cq;
  std::unique_ptr<queues::CompletionQueue> recv_cq;
  std::unique_ptr<QueuePair> qp;
  std::vector<ibv_event_type> events;
  bool overflowed = false;
};

// One end of the simulated network: memory, QPs, and a loop like a shard's. At random it delays
// acknowledgements, lets small requests coalesce, and limits the packets sent at a time.
class Host : public net::PacketHandler {
 public:
  struct QpSizes {
    uint32_t send_requests = 64;
    uint32_t recv_requests = 64;
    Duration least_ack_timeout = std::chrono::milliseconds(4);
    queues::SharedReceiveQueue* srq = nullptr;              // null: a receive queue of its own
    const queues::SharedReceiveQueueTable* srqs = nullptr;  // for an XRC target, with its domain
    uint64_t xrc_domain = 0;
    congestion::Kind congestion = congestion::Kind::kFixed;
    trace::Recorder* trace = nullptr;
  };

  Host(net::SimulatedNetwork& network, const roce::Address& address, uint64_t seed)
      : network_(network), port_(network.add_port(address)), memory_(seed), random_(seed) {}

  net::SimulatedPort& port() { return port_; }
  TestMemory& memory() { return memory_; }

  template <class Qp>
  SimulatedQp& add_qp(const QpSizes& sizes) {
    SimulatedQp& s = *qps_.emplace_back(std::make_unique<SimulatedQp>());
    constexpr uint32_t kLists = queues::kMaxSge * sizeof(ibv_sge);
    auto send_queue = *queues::SendQueue::create(sizes.send_requests, queues::kMaxInline);
    auto recv_queue = *queues::RecvQueue::create(sizes.recv_requests, kLists);
    s.send_cq = *queues::CompletionQueue::create(sizes.send_requests * 2 + 1, &s);
    s.recv_cq = *queues::CompletionQueue::create(sizes.recv_requests * 2 + 1, &s);
    QpConfig config;
    config.qpn = roce::Qpn(kFirstQpn + static_cast<uint32_t>(qps_.size()) - 1);
    config.pd = kTestPd;
    config.srq = sizes.srq;
    config.srqs = sizes.srqs;
    config.xrc_domain = sizes.xrc_domain;
    config.send_cq = s.send_cq.get();
    config.recv_cq = s.recv_cq.get();
    config.keys = &memory_.keys();
    config.routes = &routes_;
    config.listener = &s;
    config.counters = &s.counters;
    config.least_ack_timeout = sizes.least_ack_timeout;
    config.congestion = sizes.congestion;
    config.incast = &incast_;
    config.trace = sizes.trace;
    s.qp = std::make_unique<Qp>(config, std::move(send_queue), std::move(recv_queue));
    return s;
  }

  const std::vector<std::unique_ptr<SimulatedQp>>& qps() const { return qps_; }
  uint64_t counter(QpCounter which) const {
    uint64_t sum = 0;
    for (const auto& s : qps_) sum += s->counters[which].load();
    return sum;
  }

  // Runs one round. True: call it again at once.
  bool progress(TimePoint now);
  TimePoint deadline() const;
  // Describes a promise of the transport that was broken; null if none was.
  const char* complaint() const { return complaint_; }

  void on_packet(const transport::IncomingPacket& incoming) override;

 private:
  static constexpr uint32_t kFirstQpn = 0x11;

  bool transmit(QueuePair& qp, TimePoint now);

  net::SimulatedNetwork& network_;
  net::SimulatedPort& port_;
  TestRoutes routes_{port_, port_.traits()};
  TestMemory memory_;
  Random random_;
  IncastMeter incast_;
  std::vector<std::unique_ptr<SimulatedQp>> qps_;
  const char* complaint_ = nullptr;
};

}  // namespace verbena::transport
